"""Histories of pipelines, drawn from a seed and run without Spark."""
