"""HYBRIDJOIN (HYBRID): the oldest waiting tuple picks the pages of R that all waiting tuples join."""
