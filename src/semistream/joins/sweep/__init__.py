"""SweepJoin: sorted levels of packed tuples share a sweep over the pages they want."""
