"""What a join will cost before it runs: the papers' cost models, for a workload and a machine."""
