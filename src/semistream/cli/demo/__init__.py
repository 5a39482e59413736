"""``semistream demo``: orders and products through Spark, beside Spark's own join."""
