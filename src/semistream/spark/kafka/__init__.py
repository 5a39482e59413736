"""Kafka as a connector and as a target table."""
