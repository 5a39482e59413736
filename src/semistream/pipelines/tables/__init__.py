"""Target tables: write files, then publish a batch once."""
