"""Operators that join a stream S with a relation R: one folder each, and the parts they share."""
