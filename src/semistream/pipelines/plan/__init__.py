"""Plans of a pipeline's steps and joins, checked on the driver and sent to every worker."""
