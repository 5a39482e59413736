"""The join condition: equalities, ranges and expressions, resolved once per join."""
