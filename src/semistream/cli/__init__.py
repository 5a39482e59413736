"""The command line: commands here, what they print in `output`."""
