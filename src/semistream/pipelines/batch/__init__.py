"""One batch on the driver: what is decided, committed, cleaned up and reported. Spark only drives it."""
