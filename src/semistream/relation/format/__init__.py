"""The on-disk format of a relation: pages, page table, manifest, column groups."""
