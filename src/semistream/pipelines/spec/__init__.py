"""The pipeline file as validated data."""
