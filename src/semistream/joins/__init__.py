"""Operators that join a stream S with a relation R: one folder per operator, plus the parts they share."""
