"""A worker's part of a batch: check, join and write its rows, and account for every one."""
