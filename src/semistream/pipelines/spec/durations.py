"""Parse durations such as ``500ms``, ``30s``, ``5 minutes``, ``1h`` and ``7 days``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from semistream.errors import InvalidArgument
from semistream.pipelines.spec.part import as_value_error

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_WORDS = {"second": "s", "minute": "m", "hour": "h", "day": "d", "millisecond": "ms"}
_MOST_S = 100 * 365 * 86400.0
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def parse_duration(text: str) -> float:
    """Return a duration in seconds.

    >>> parse_duration("5 minutes"), parse_duration("250ms")
    (300.0, 0.25)
    """
    found = _WRITTEN.fullmatch(text.strip().lower())
    if found:
        unit = found[2]
        seconds = _UNITS_S.get(_WORDS.get(unit.removesuffix("s"), unit))
        if seconds is not None and 0 < float(found[1]) * seconds <= _MOST_S:
            return float(found[1]) * seconds
    raise InvalidArgument(f"{text!r} is not a duration; write it like '500ms', '30s', '5 minutes' or '7 days'.")


def _checked(duration: str) -> str:
    as_value_error(parse_duration, duration)
    return duration


Duration = Annotated[str, AfterValidator(_checked)]
"""A setting that `parse_duration` understands."""
