"""Kernels of reading: cutting a read plan, serving reads, gathering rows."""
