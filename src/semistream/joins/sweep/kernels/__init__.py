"""Kernels of the sweep: matching pages and packing columns."""
