"""`semistream.spark.window_join`: a join of two streams within a window, with bounded state."""
