"""Kernels of the window join."""
