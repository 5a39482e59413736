"""The cache front stage (FRONT): hot rows of R answered from memory, before any operator."""
