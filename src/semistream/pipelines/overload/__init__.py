"""Overload control: limit the rows that a batch joins, shed the others, and report the results missing for them."""
