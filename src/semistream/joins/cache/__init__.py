"""The front stage (FRONT): a cache of R's hot rows in front of any operator."""
