"""One batch in one worker: rows in, outcomes out, every row accounted for."""
