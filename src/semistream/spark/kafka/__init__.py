"""Kafka: checks of Spark's connector, offsets of topics, and topics as target tables."""
