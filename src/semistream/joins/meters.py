"""Measure a running join: how fast its stream comes, and how its costs compare with those expected."""

from __future__ import annotations


class RateMeter:
    """Rows per second of a stream, from the times at which its batches came. What is older counts less: half as much
    for every ``half_life_s`` seconds.

    The rows of a batch are taken to have come since the batch before. Of the first one that is not known, so there is
    no rate until the second.

    >>> meter = RateMeter(half_life_s=10)
    >>> meter.count(500, now_s=3.0)
    >>> meter.rate(now_s=3.0)
    >>> meter.count(200, now_s=5.0)
    >>> meter.rate(now_s=5.0)
    100.0
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._rows = 0.0
        self._seconds = 0.0
        self._last_s: float | None = None

    def count(self, rows: int, now_s: float) -> None:
        """A batch of ``rows`` came."""
        if self._last_s is None:
            self._last_s = now_s
            return
        self._rows, self._seconds = self._faded(now_s)
        self._rows += rows
        self._last_s = now_s

    def rate(self, now_s: float) -> float | None:
        """Rows per second, with the silence since the last batch; None while it cannot be known."""
        rows, seconds = self._faded(now_s)
        return rows / seconds if seconds > 0 and self._seconds > 0 else None

    def _faded(self, now_s: float) -> tuple[float, float]:
        passed = 0.0 if self._last_s is None else max(now_s - self._last_s, 0.0)
        kept = 2 ** (-passed / self._half_life_s)
        return self._rows * kept, self._seconds * kept + passed


class CostMeter:
    """By how much the time that things take exceeds what was expected of them; what is older counts less: half as much
    for every ``half_life_s`` seconds that were measured since. The first time does not count: kernels are loaded in it.
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._measured_s = 0.0
        self._expected_s = 0.0
        self._first = True

    def count(self, measured_s: float, expected_s: float) -> None:
        """Something took ``measured_s``; a clock that stood still tells nothing."""
        first, self._first = self._first, False
        if measured_s > 0 and expected_s > 0 and not first:
            kept = 2 ** (-measured_s / self._half_life_s)
            self._measured_s = self._measured_s * kept + measured_s
            self._expected_s = self._expected_s * kept + expected_s

    @property
    def ratio(self) -> float:
        """Measured by expected time; 1 while nothing was measured."""
        return self._measured_s / self._expected_s if self._expected_s else 1.0
