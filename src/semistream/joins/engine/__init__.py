"""The default operator: a sweep, with a cache in front of it where that pays off."""
