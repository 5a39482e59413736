"""``semistream demo``: a pipeline that loads orders into a star schema, compared with Spark's own joins."""
