"""Commands for pipelines: validate, run, reconcile, status, vacuum."""
