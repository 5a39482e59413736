"""Workloads that arrive as Arrow batches."""

from semistream.streams.bursty import Bursty
from semistream.streams.zipf import Zipf
from semistream.streams.zipf_pair import ZipfPair

__all__ = ["Bursty", "Zipf", "ZipfPair"]
