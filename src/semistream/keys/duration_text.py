"""Durations as text, in one notation everywhere: conditions, windows, pipelines and the command line."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

_DAY_S = 86_400
UNIT_SECONDS = {
    name: length
    for length, names in {
        Fraction(1, 10**9): "ns nanosecond nanoseconds",
        Fraction(1, 10**6): "us microsecond microseconds",
        Fraction(1, 10**3): "ms millisecond milliseconds",
        Fraction(1): "s sec secs second seconds",
        Fraction(60): "m min mins minute minutes",
        Fraction(3600): "h hr hrs hour hours",
        Fraction(_DAY_S): "d day days",
        Fraction(7 * _DAY_S): "w week weeks",
    }.items()
    for name in names.split()
}
"""Seconds of each unit of fixed length. Months and years have none."""

EXAMPLES = "'500ms', '30s', '5 minutes', '1h', '7 days' or '1 week'"
"""Ways to write a duration, for error messages."""

_WRITTEN = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([a-zA-Z]{1,12})\s*")


def duration_seconds(value: object) -> Fraction | None:
    """Return a duration, as text or a timedelta, in seconds; None if ``value`` is not a duration.

    >>> duration_seconds("5 minutes"), duration_seconds("250ms"), duration_seconds("1 month")
    (Fraction(300, 1), Fraction(1, 4), None)
    """
    if isinstance(value, timedelta):
        return Fraction(value.days * _DAY_S + value.seconds) + Fraction(value.microseconds, 10**6)
    found = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    unit = None if found is None else UNIT_SECONDS.get(found[2].lower())
    return None if found is None or unit is None else Fraction(found[1]) * unit
