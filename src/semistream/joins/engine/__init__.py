"""The default operator: a sweep, with a cache in front where that pays."""
