"""The papers' own formulas, from which their figures follow: one file for each paper."""
