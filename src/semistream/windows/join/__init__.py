"""The window join operator: rows kept by worth, results, archive and repair."""
