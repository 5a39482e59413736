"""Prediction of joins before they run: choose an operator and its memory split, explain and calibrate."""
