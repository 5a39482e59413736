"""Calibration: measure the disk and the operators of this machine, and fit their costs."""
