"""Updates of relations that arrive while a pipeline runs."""
