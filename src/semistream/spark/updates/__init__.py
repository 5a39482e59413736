"""Updates of relations, read by Spark."""
