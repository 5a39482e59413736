"""Fuzzing: hostile bytes for everything that semistream parses. ``make fuzz``; a few seconds of it are in the suite."""
