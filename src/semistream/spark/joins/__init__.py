"""`semistream.spark.join` and `semistream.spark.explain`: joins of a DataFrame with a relation."""
