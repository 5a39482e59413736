"""Power cuts: every durable write is recorded, and each state that the disk may be left in is recovered from."""
