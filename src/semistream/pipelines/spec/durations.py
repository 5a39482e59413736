"""Durations in a pipeline: settings such as ``500ms``, ``30s``, ``5 minutes`` and ``1 week``, in seconds."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from semistream.errors import InvalidArgument, shortened
from semistream.keys.duration_text import EXAMPLES, duration_seconds
from semistream.pipelines.spec.part import as_value_error

_MOST_S = 100 * 365 * 86400


def parse_duration(text: str) -> float:
    """Return a duration in seconds; raise `InvalidArgument` unless it is above zero and at most 100 years.

    >>> parse_duration("5 minutes"), parse_duration("250ms")
    (300.0, 0.25)
    """
    seconds = duration_seconds(text)
    if seconds is None or not 0 < seconds <= _MOST_S:
        limit = "" if seconds is None else " above zero and of at most 100 years"
        raise InvalidArgument(f"{shortened(text)} is not a duration{limit}; write it like {EXAMPLES}.")
    return float(seconds)


def _checked(duration: str) -> str:
    as_value_error(parse_duration, duration)
    return duration


Duration = Annotated[str, AfterValidator(_checked)]
"""A setting that `parse_duration` understands."""
