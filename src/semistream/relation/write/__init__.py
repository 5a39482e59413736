"""Writing a relation: sources, external sort, pages, and the draft of a version."""
