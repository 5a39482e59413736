"""Formulas of the papers as printed, one file for each paper."""
