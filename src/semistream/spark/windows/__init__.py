"""`semistream.spark.window_join`: two streams joined in a window, with bounded state."""
