"""``semistream demo``: a pipeline from orders to the facts of a star schema, beside Spark's own joins."""
