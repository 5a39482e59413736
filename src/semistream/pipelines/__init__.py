"""What a warehouse is loaded by: pipelines as data, their steps, their ledger and their tables, without Spark."""
