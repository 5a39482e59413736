"""``semistream window``: try a window join on two files."""
