"""Experiments that repeat figures and tables of the papers, one file each."""
