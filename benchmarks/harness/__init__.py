"""What the benchmarks share: workloads, timing, contestants, running pipelines, and the report."""
