"""MachineSpeed: the current speed of a shared machine, which may halve within minutes."""

from __future__ import annotations

import statistics
import time
from collections import deque
from pathlib import Path

from benchmarks.harness.workload import relation, stream_batches
from semistream import SweepJoin

_ROWS, _TUPLES = 3_000_000, 1_000_000
_SHARES = ((0.25, 1.0), (0.02, 0.07))  # memory as a share of R, and the share of the stream joined
_USUAL = 0.15  # tolerance around the usual speed
_PATIENCE_S = 10.0  # longest wait for the usual speed


class MachineSpeed:
    """Speed of the machine, from repeated timings of two joins that read, sort and gather like the measured ones.

    One of them reads as long as it computes: if the disk of a virtual machine is served by the same processors, it is
    at times not read while a join computes, although reading or computing alone takes no longer than before.
    """

    def __init__(self, folder: Path) -> None:
        r = relation(folder, _ROWS)
        (self._stream,) = stream_batches(_ROWS, _TUPLES, 1, exponent=0.0)
        self._operators = [
            (SweepJoin(r, self._stream.schema, on="key", memory=int(share * r.nbytes)), int(part * _TUPLES))
            for share, part in _SHARES
        ]
        self._usual_s = self._seconds()  # the first run also verifies pages and allocates memory
        self._tried: list[float] = []

    def tried(self) -> None:
        """Add a timing to those that define the usual speed."""
        self._tried.append(self._seconds())

    def remember(self) -> None:
        """Set the usual time to the first quartile of the added timings, as calibration does (`MachinePulse`)."""
        self._usual_s, self._tried = statistics.quantiles(self._tried, n=4)[0], []

    def now(self) -> float:
        """Return the current speed as a multiple of the usual one."""
        return self._usual_s / self._seconds()

    def settle(self) -> float:
        """Wait for about the usual speed, for a limited time, and return the last speed measured."""
        began_s = time.perf_counter()
        while not is_usual(speed := self.now()) and time.perf_counter() - began_s < _PATIENCE_S:
            pass
        return speed

    def _seconds(self) -> float:
        start = time.perf_counter()
        for operator, tuples in self._operators:
            deque(operator.push(self._stream.slice(0, tuples)), maxlen=0)
            deque(operator.flush(), maxlen=0)
        return time.perf_counter() - start


def is_usual(speed: float) -> bool:
    """True if a speed is about the usual one."""
    return abs(speed - 1) <= _USUAL
