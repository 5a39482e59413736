"""Reading of pages: disks, read plans, read-ahead lanes, and row gathering."""
