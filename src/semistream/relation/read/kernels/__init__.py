"""Kernels for reading: cut a read plan, serve reads, gather rows."""
