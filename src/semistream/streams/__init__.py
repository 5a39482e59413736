"""Workloads that arrive as Arrow batches."""

from semistream.streams.bursty import Bursty
from semistream.streams.cloud_file import grid_cell, read_cloud_reports
from semistream.streams.clouds import CloudReports
from semistream.streams.zipf import Zipf
from semistream.streams.zipf_pair import ZipfPair

__all__ = ["Bursty", "CloudReports", "Zipf", "ZipfPair", "grid_cell", "read_cloud_reports"]
