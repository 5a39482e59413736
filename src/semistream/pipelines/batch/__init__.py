"""One batch on the driver, without Spark: its plan, decisions, commit, clean-up and report."""
