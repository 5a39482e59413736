"""Input that workers read without Spark: splits of Parquet files and of the archive of shed rows."""
