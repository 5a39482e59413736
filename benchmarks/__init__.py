"""semistream beside its peers: every figure is measured in one run, on one machine, as a ratio."""
