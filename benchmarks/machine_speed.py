"""How fast a machine is at the moment: one that is shared with others may be half as fast minutes later."""

from __future__ import annotations

import statistics
import time
from collections import deque
from pathlib import Path

from benchmarks.workload import relation, stream_batches
from semistream.joins import SweepJoin

_ROWS, _TUPLES = 1_000_000, 1_000_000
_TRIES = 3


class MachineSpeed:
    """Times one and the same join, which reads, sorts and gathers like those that are measured, again and again."""

    def __init__(self, folder: Path) -> None:
        self._relation = relation(folder, _ROWS)
        (self._stream,) = stream_batches(_ROWS, _TUPLES, 1, exponent=0.0)
        self._usual_s = self._seconds()  # the first time, pages are checked

    def remember(self) -> None:
        """Take the speed of now for the usual one."""
        self._usual_s = statistics.median(self._seconds() for _ in range(_TRIES))

    def now(self) -> float:
        """The speed of now as a multiple of the usual one."""
        return self._usual_s / self._seconds()

    def _seconds(self) -> float:
        start = time.perf_counter()
        for share, tuples in ((0.25, _TUPLES), (0.05, _TUPLES // 10)):
            memory = int(share * self._relation.nbytes)
            with SweepJoin(self._relation, self._stream.schema, on="key", memory=memory) as operator:
                deque(operator.push(self._stream.slice(0, tuples)), maxlen=0)
                deque(operator.flush(), maxlen=0)
        return time.perf_counter() - start
