"""Sources of a pipeline on Spark: files, Kafka topics, snapshots and generated rows."""
