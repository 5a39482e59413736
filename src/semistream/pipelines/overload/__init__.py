"""Overload control: how many rows a batch may join, which rows to shed, what was lost."""
