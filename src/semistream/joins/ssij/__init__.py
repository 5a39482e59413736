"""The semi-streaming index join (SSIJ): an index, a page cache, and an optimal read plan."""
