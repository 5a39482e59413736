"""What a pipeline would do, checked on the driver before anything runs."""
