"""Look-up joins: an index probe per tuple, or all of R in memory. Baselines and last resorts."""
