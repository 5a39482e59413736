"""Numba kernels: functions from arrays to arrays, without I/O or Python objects."""
