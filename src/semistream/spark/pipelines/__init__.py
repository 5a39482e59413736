"""How Spark drives a pipeline: micro-batches, phases, overload, reports."""
