"""The offline optimum: the best that any policy could have kept, by min-cost flow."""
