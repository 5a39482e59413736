"""Writing of relations: sources, external sort, pages, and drafts of versions."""
