"""Pipelines on Spark: the query, its batches, and the tasks of each phase."""
