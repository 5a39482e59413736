"""The commands of a pipeline: run, validate, status, reconcile."""
