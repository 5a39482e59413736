"""Updates of relations while a pipeline runs: what is new, and each applied once."""
