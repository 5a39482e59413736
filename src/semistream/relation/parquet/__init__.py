"""Plain Parquet or Delta files as R, without building a relation."""
