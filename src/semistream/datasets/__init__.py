"""Synthetic and recorded workloads, delivered as Arrow record batches."""

from semistream.datasets.bursty import Bursty
from semistream.datasets.clouds import CloudReports
from semistream.datasets.zipf import Zipf
from semistream.datasets.zipf_pair import ZipfPair

__all__ = ["Bursty", "CloudReports", "Zipf", "ZipfPair"]
