"""MachinePulse: tells when a machine is disturbed by others, from how long the same short work takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import Relation

_WARM_BEATS = 4
_UNDISTURBED = 0.25  # of all beats, at least
_CALM = 1.15  # times the usual seconds, at most
_ROWS, _RANGE, _MEMORY = 24_000, 0.25, 0.02  # tuples, and of R: what they ask for, and as memory
_LEAST_BYTES = 4_000_000  # of memory, with which any small relation can be joined


class MachinePulse:
    """Times some short ``work`` again and again.

    What a quarter of the beats took, or less, is usual: also if a machine is disturbed for half of the time, that is
    what the work takes while it is not.
    """

    def __init__(self, work: Callable[[], None], *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._work, self._clock = work, clock
        self._beats: list[float] = []
        for _ in range(_WARM_BEATS):
            self.beat()
        del self._beats[:-1]

    @property
    def last_s(self) -> float:
        """The seconds that it took the last time."""
        return self._beats[-1]

    def beat(self) -> float:
        """The seconds that it takes now."""
        began_s = self._clock()
        self._work()
        self._beats.append(self._clock() - began_s)
        return self.last_s

    def is_calm(self, seconds: float) -> bool:
        """Whether a beat took about as long as usual, or less."""
        return seconds <= _CALM * float(np.quantile(self._beats, _UNDISTURBED))


@contextmanager
def pulse_of_joins(relation: Relation) -> Iterator[MachinePulse]:
    """A pulse that a join with a relation gives, which reads about as long as it computes."""
    keys = np.random.default_rng(2).integers(max(int(_RANGE * relation.num_rows), 1), size=_ROWS)
    stream, memory = pa.record_batch({"key": keys}), max(int(_MEMORY * relation.nbytes), _LEAST_BYTES)
    disk = relation.disk("auto")  # so that it does not go by an earlier profile
    join = SweepJoin(relation, stream.schema, on="key", memory=memory, disk=disk)

    def work() -> None:
        for _ in join.push(stream):
            pass
        for _ in join.flush():
            pass

    with join:
        yield MachinePulse(work)
