"""Workloads that arrive as Arrow batches."""

from semistream.streams.bursty import Bursty
from semistream.streams.zipf import Zipf

__all__ = ["Bursty", "Zipf"]
