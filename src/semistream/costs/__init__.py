"""Cost model vocabulary: machines, workloads, key frequencies, and the prediction made from them."""
