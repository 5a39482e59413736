"""The ledger: a durable record of each batch, from its plan to its commit."""
