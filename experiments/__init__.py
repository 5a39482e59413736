"""Experiments: the figures and tables of the papers, one file each."""
