"""Window joins of two streams in less memory than they need, and their optimum."""
