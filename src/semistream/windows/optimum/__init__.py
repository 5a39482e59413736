"""The offline optimum: the most results that any eviction policy could have kept, by min-cost flow."""
