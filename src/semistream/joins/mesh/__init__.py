"""MESHJOIN and AMESHJOIN: a cyclic scan of R shared by all waiting tuples (MESH)."""
