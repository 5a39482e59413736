"""The two streams: arrivals, event time, window lengths, and which pairs match."""
