"""Shared parts of the benchmarks: workloads, timing, contestants, running pipelines, and the report."""
