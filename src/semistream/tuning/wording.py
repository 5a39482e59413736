"""Texts for predictions: rates, times, memory sizes and operators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from semistream.budget import format_bytes
from semistream.costs.prediction import Prediction

_DIGITS = 3  # significant digits of a prediction: more would be noise


class Described(Protocol):
    """An operator with its options."""

    @property
    def operator(self) -> str:
        """The operator's name."""

    @property
    def options(self) -> Mapping[str, float]:
        """Options of the operator."""


def described(choice: Described) -> str:
    """Describe an operator with its options, such as ``"engine, cache 12.5%"``."""
    share = choice.options.get("cache_share", 0.0)
    return f"{choice.operator}, cache {share:.1%}" if share else choice.operator


def rate_text(rate: float) -> str:
    """Format a predicted rate, rounded down.

    >>> rate_text(1239999.9), rate_text(0.2519), rate_text(math.inf)
    ('1,230,000 tuples/s', '0.251 tuples/s', 'no bound')
    """
    if math.isinf(rate):
        return "no bound"
    unit = 10.0 ** (_magnitude(rate) - _DIGITS)
    return asked_text(math.floor(rate / unit * (1 + 1e-12)) * unit)


def asked_text(rate: float) -> str:
    """Format a requested rate, unrounded.

    >>> asked_text(50_000.0), asked_text(0.5)
    ('50,000 tuples/s', '0.5 tuples/s')
    """
    return f"{rate:,.10g} tuples/s"


def pace_text(prediction: Prediction) -> str:
    """Describe the rate of an operator and the resource that bounds it."""
    if math.isinf(prediction.rate):
        return "no known bound: nothing is read from disk, and processor costs were not measured"
    return f"{rate_text(prediction.rate)}, bound by the {prediction.bound_by}"


def latency_text(prediction: Prediction) -> str:
    """Describe how long tuples wait for their results."""
    if math.isinf(prediction.worst_latency_s):
        return "no bound: tuples arrive faster than they are joined"
    return f"{seconds_text(prediction.median_latency_s)} median, {seconds_text(prediction.worst_latency_s)} worst"


def seconds_text(seconds: float) -> str:
    """Format a time in ms, s or h.

    >>> seconds_text(0.0), seconds_text(0.00123456), seconds_text(0.25), seconds_text(152.3), seconds_text(12345.6)
    ('0 ms', '1.23 ms', '250 ms', '152 s', '3.43 h')
    """
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    value, unit = (seconds, "s") if seconds < 3600 else (seconds / 3600, "h")
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:,.0f} {unit}"


def cost_text(seconds: float) -> str:
    """Format the cost of one unit of work, which may be far below a millisecond.

    >>> cost_text(2.34e-8), cost_text(9.996e-7), cost_text(4.5e-5), cost_text(9.996e-4), cost_text(0.0062)
    ('23.4 ns', '1 µs', '45 µs', '1 ms', '6.2 ms')
    """
    if seconds >= 0.9995e-3:
        return seconds_text(seconds)
    value, unit = (seconds * 1e6, "µs") if seconds >= 0.9995e-6 else (seconds * 1e9, "ns")
    return f"{value:.3g} {unit}"


def enough_text(nbytes: int) -> str:
    """Format a sufficient memory size, rounded up so that the text itself is sufficient when given back.

    >>> enough_text(2_720_001), enough_text(999_900), enough_text(999)
    ('2.73 MB', '1 MB', '999 B')
    """
    unit = 10 ** max(_magnitude(nbytes) - _DIGITS, 0)
    return format_bytes(-(-nbytes // unit) * unit)


def _magnitude(value: float) -> int:
    """Return the number of digits before the decimal point."""
    return math.floor(math.log10(value)) + 1 if value > 0 else 1
