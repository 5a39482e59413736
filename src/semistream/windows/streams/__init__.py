"""The two streams of a window join: arrivals, event time, window lengths and join conditions."""
