"""The ``semistream`` command line: a module or sub-package for each command; `output` prints the reports."""
