"""The `semistream window` command: try a window join on two files."""
