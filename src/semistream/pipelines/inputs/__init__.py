"""Input a worker reads by itself: splits of Parquet files and of the shed archive."""
