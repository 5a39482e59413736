"""The `semistream explain` command: text and plot for a join or a pipeline."""
