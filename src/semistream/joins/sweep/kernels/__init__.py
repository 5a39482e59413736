"""Kernels of the sweep: match pages with levels, and pack columns."""
