"""Numba kernels: arrays in, arrays out, no I/O, no objects."""
