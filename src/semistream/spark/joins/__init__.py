"""`semistream.spark.join`: the plan, the routing, and the operator kept in each worker."""
