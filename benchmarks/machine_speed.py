"""How fast a machine is at the moment: one that is shared with others may be half as fast minutes later."""

from __future__ import annotations

import statistics
import time
from collections import deque
from pathlib import Path

from benchmarks.workload import relation, stream_batches
from semistream import SweepJoin

_ROWS, _TUPLES = 3_000_000, 1_000_000
_SHARES = ((0.25, 1.0), (0.02, 0.07))  # of R as memory, and of the stream that is joined with it
_USUAL = 0.15  # of the usual speed, that it may be off
_PATIENCE_S = 10.0  # until it is as usual again


class MachineSpeed:
    """Times the same two joins, which read, sort and gather like those that are measured, again and again.

    One of them reads as long as it computes: where a virtual machine's disk is served by the same processors, it is at
    times not read while a join computes, although either alone takes no longer than before.
    """

    def __init__(self, folder: Path) -> None:
        r = relation(folder, _ROWS)
        (self._stream,) = stream_batches(_ROWS, _TUPLES, 1, exponent=0.0)
        self._operators = [
            (SweepJoin(r, self._stream.schema, on="key", memory=int(share * r.nbytes)), int(part * _TUPLES))
            for share, part in _SHARES
        ]
        self._usual_s = self._seconds()  # the first time, pages are checked and memory is got
        self._tried: list[float] = []

    def tried(self) -> None:
        """Take the time of now as one of those from which the usual one is made."""
        self._tried.append(self._seconds())

    def remember(self) -> None:
        """Let the usual time be that of the fastest quarter of those tried, as calibration has it (`MachinePulse`)."""
        self._usual_s, self._tried = statistics.quantiles(self._tried, n=4)[0], []

    def now(self) -> float:
        """The speed of now as a multiple of the usual one."""
        return self._usual_s / self._seconds()

    def settle(self) -> float:
        """Wait until it has about the usual speed, but not for ever; gives the speed that it has then."""
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
    """Whether a machine of such a speed is about as fast as usual."""
    return abs(speed - 1) <= _USUAL
