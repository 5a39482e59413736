"""Benchmarks of semistream against its peers: each ratio is measured in one run, on one machine."""
