"""Static join approximation: which rows to drop before a join of whole relations."""
