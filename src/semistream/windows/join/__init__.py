"""The window join operator: tuple memory, results, archive and repair."""
