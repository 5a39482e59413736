"""Warehouse loading without Spark: pipeline specs, steps, the ledger and target tables."""
