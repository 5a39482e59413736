"""MachinePulse: detects when other load disturbs the machine, by timing the same short work repeatedly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import Relation

_WARM_BEATS = 4
_UNDISTURBED = 0.25  # share of the beats assumed to be undisturbed, at least
_CALM = 1.15  # longest calm beat, as a multiple of the usual one
_ROWS, _RANGE, _MEMORY = 24_000, 0.25, 0.02  # tuples, the share of R's keys that they cover, and memory as a share of R
_LEAST_BYTES = 4_000_000  # enough memory to join any small relation


class MachinePulse:
    """Repeated timings ("beats") of some short ``work``.

    The first quartile of the beats counts as usual: even if the machine is disturbed half of the time, it is the time
    of undisturbed work.
    """

    def __init__(self, work: Callable[[], None], *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._work, self._clock = work, clock
        self._beats: list[float] = []
        for _ in range(_WARM_BEATS):
            self.beat()
        del self._beats[:-1]

    @property
    def last_s(self) -> float:
        """Seconds of the last beat."""
        return self._beats[-1]

    def beat(self) -> float:
        """Time the work once more, and return the seconds."""
        began_s = self._clock()
        self._work()
        self._beats.append(self._clock() - began_s)
        return self.last_s

    def is_calm(self, seconds: float) -> bool:
        """True if a beat of ``seconds`` was about as fast as usual, or faster."""
        return seconds <= _CALM * float(np.quantile(self._beats, _UNDISTURBED))


@contextmanager
def pulse_of_joins(relation: Relation) -> Iterator[MachinePulse]:
    """Open a pulse whose work is a join with ``relation`` that reads about as long as it computes."""
    keys = np.random.default_rng(2).integers(max(int(_RANGE * relation.num_rows), 1), size=_ROWS)
    stream, memory = pa.record_batch({"key": keys}), max(int(_MEMORY * relation.nbytes), _LEAST_BYTES)
    disk = relation.disk("auto")  # so that no earlier profile influences it
    join = SweepJoin(relation, stream.schema, on="key", memory=memory, disk=disk)

    def work() -> None:
        for _ in join.push(stream):
            pass
        for _ in join.flush():
            pass

    with join:
        yield MachinePulse(work)
