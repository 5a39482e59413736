"""Error measures of an approximate join result."""
