"""Parquet files and Delta tables as R, without building a relation."""
