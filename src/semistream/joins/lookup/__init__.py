"""Look-up joins: index nested loops, the papers' baseline, and a join that holds all of R in memory."""
