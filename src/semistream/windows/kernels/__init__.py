"""Numba kernels of the window join."""
