"""Check, plan and explain a pipeline on the driver, without running it."""
