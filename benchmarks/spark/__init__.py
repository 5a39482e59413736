"""Benchmarks of joins and pipelines on local Spark."""
