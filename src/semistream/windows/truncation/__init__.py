"""Static join approximation: the rows to drop before a join of whole relations."""
