"""The ledger: what was decided, done and committed for each batch."""
