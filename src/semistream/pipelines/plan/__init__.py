"""Steps and joins of a pipeline, checked on the driver and sent to every worker."""
