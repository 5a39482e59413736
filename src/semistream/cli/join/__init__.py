"""``semistream join``: its options, and rows on standard input and output."""
