"""Updates of relations while a pipeline runs, from files or Kafka."""
