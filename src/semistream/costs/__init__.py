"""Vocabulary of the cost models: machines, workloads, key frequencies, and predictions made from them."""
