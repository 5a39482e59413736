"""The join condition: which columns and ranges match, resolved once per join."""
