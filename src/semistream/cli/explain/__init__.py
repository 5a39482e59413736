"""``semistream explain``: predict a join or a pipeline before it runs, as text and as a plot."""
