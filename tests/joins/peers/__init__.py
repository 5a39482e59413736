"""Cases of the join suites of Polars, DuckDB, Spark SQL, pandas and Arrow, over every operator."""
