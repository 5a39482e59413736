"""Sources of a pipeline on Spark: files, Kafka, snapshots, generated rows."""
