"""One operator over one stream, as long as it takes to know its rate: in seconds, or in the time of a simulated disk.

A stream is one record batch that is pushed in slices. Each of its tuples has one partner in R, so the results are
checked while they are counted: as many as tuples, and each tuple once (by the sum of their positions in the stream).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from semistream import JoinStats, SemiStreamJoin

WARM_S, TIMED_S, DRAIN_S = 0.5, 1.5, 3.0
_WARM_SHARE = 8  # one part in so many of the stream warms up at most
_PUSHES = 80  # of the largest size that a stream is pushed in
_QUICK_S = 0.05  # a push that takes less is followed by one of twice the tuples

SEEK_S, TRANSFER_S, SIMULATED_PAGE_BYTES = 0.008, 0.0001, 8192
"""The papers' disk. SSIJ IV-D charges C(N) = S + T * N for N blocks, of 8192 bytes (SSIJ Table II); MESH (2) calls it
c_I/O(b). No paper gives S and T: 8 ms and 0.1 ms (80 MB/s) are those of hard disks of their years."""


@dataclass(frozen=True)
class _Work:
    """What a run has cost so far, by counts that are the same in every run."""

    disk_s: float
    steps: int

    @classmethod
    def of(cls, stats: JoinStats) -> _Work:
        """The time of the reads also where they are counted only, as those of the LMDB tree."""
        return cls(stats.pages_seek * SEEK_S + stats.pages_read * TRANSFER_S, stats.steps)

    def __sub__(self, other: _Work) -> _Work:
        return _Work(self.disk_s - other.disk_s, self.steps - other.steps)

    def within(self, most: _Work) -> bool:
        return self.disk_s <= most.disk_s and self.steps <= most.steps


SIMULATED_WARM, SIMULATED_TIMED = _Work(20.0, 20_000), _Work(60.0, 20_000)
_QUICK = _Work(0.5, 500)  # as _QUICK_S, for a simulated disk


@dataclass(frozen=True)
class Rate:
    """Tuples, and the seconds that they took; without a read on a simulated disk, these are 0."""

    tuples: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.tuples / self.seconds if self.seconds else math.inf


class ArrivalClock:
    """The time of a stream that comes faster than any join takes it; it stands still while an operator works.

    A join that tunes itself by its clock then runs at its greatest rate. On the clock of this machine it would see the
    rate at which it takes the stream itself, and make do with the memory for that.
    """

    def __init__(self, per_second: float = 1e9) -> None:
        self._per_second = per_second
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def arrive(self, rows: int) -> None:
        self._now_s += rows / self._per_second


class _Driver:
    """Pushes a stream and checks what comes out."""

    def __init__(self, operator: SemiStreamJoin, stream: pa.RecordBatch, clock: ArrivalClock) -> None:
        self.operator = operator
        self.clock = clock
        self.pushed = 0
        self._stream = stream
        self._joined = self._positions = 0

    @property
    def left(self) -> int:
        return self._stream.num_rows - self.pushed

    def push(self, rows: int) -> None:
        """Push the next tuples; behind the last the stream begins anew."""
        tuples = self._stream.slice(self.pushed % self._stream.num_rows, rows)
        self.clock.arrive(tuples.num_rows)
        self._count(self.operator.push(tuples))
        self.pushed += tuples.num_rows

    def go_on_with(self, stream: pa.RecordBatch) -> None:
        """Push other tuples from now on, when all that were pushed have come out."""
        self._stream, self.pushed, self._joined, self._positions = stream, 0, 0, 0

    def flush(self) -> None:
        self._count(self.operator.flush())

    def check(self) -> None:
        """All tuples that were pushed have come out, each once."""
        seq, (times, more) = self._stream.column("seq"), divmod(self.pushed, self._stream.num_rows)
        expected = times * pc.sum(seq).as_py() + (pc.sum(seq.slice(0, more)).as_py() or 0)
        if (self._joined, self._positions) != (self.pushed, expected):
            raise RuntimeError(
                f"{self.operator.name} gave {self._joined} results for {self.pushed} tuples with one partner each, "
                f"and their positions add up to {self._positions} instead of {expected}"
            )

    def _count(self, results: Iterable[pa.RecordBatch]) -> None:
        for batch in results:
            self._joined += batch.num_rows
            self._positions += pc.sum(batch.column("seq")).as_py() or 0


class TimedRuns:
    """Runs of an operator over a stream, which begins anew when it ends, by the clock of this machine.

    If ``fresh`` is given, which draws tuples, each run has its own: else a cache that holds all keys of a skewed stream
    after a while would answer all of it, which it would not if the stream went on.

    There is a warm-up before the first, which shows how long a flush takes, and a run that does not count, in which all
    memory is used once: on a virtual machine it can take longer to get it than to join.
    """

    def __init__(
        self,
        operator: SemiStreamJoin,
        stream: pa.RecordBatch,
        clock: ArrivalClock,
        *,
        share: float = 1.0,
        fresh: Callable[[int], pa.RecordBatch] | None = None,
    ) -> None:
        self._operator, self._share, self._fresh, self._stream_rows = operator, share, fresh, stream.num_rows
        self._driver, most_rows = _Driver(operator, stream, clock), max(stream.num_rows // _PUSHES, 1)
        self._most_waiting = math.inf
        driver, start, self._rows = self._driver, time.perf_counter(), max(most_rows // 64, 1)
        while driver.pushed < stream.num_rows // _WARM_SHARE and time.perf_counter() - start < share * WARM_S:
            began = time.perf_counter()
            driver.push(self._rows)
            if time.perf_counter() - began < _QUICK_S:
                self._rows = min(2 * self._rows, most_rows)
        self._flush()
        self.rate()

    def rate(self, tuples: int | None = None) -> Rate:
        """Tuples/s of one run, that ends with a flush.

        It pushes so many ``tuples``, or else for a share of ``TIMED_S``, and less if what waits would take more than a
        share of ``DRAIN_S`` to flush.
        """
        if self._fresh is not None:
            self._driver.go_on_with(self._fresh(tuples or self._stream_rows))
        before, start = self._driver.pushed, time.perf_counter()
        if tuples is None:
            while (
                time.perf_counter() - start < self._share * TIMED_S
                and self._operator.stats.rows_waiting <= self._most_waiting
            ):
                self._driver.push(self._rows)
        else:
            while (left := before + tuples - self._driver.pushed) > 0:
                self._driver.push(min(self._rows, left))
        self._flush()
        rate = Rate(self._driver.pushed - before, time.perf_counter() - start)
        self._driver.check()
        return rate

    def _flush(self) -> None:
        """Flush; the more tuples wait, the less each takes of it."""
        waiting, start = self._operator.stats.rows_waiting, time.perf_counter()
        self._driver.flush()
        if waiting:
            most = self._share * DRAIN_S * waiting / (time.perf_counter() - start)
            self._most_waiting = most if math.isinf(self._most_waiting) else max(self._most_waiting, most)


def simulated_rate(operator: SemiStreamJoin, stream: pa.RecordBatch, clock: ArrivalClock) -> Rate:
    """Tuples per second of the simulated disk's time alone: the same in every run.

    As in the papers (MESH 5), the rate is taken after a warm-up. Both end with their share of the stream, or when
    ``SIMULATED_WARM`` and ``SIMULATED_TIMED`` are used up, and with a flush: an operator that lets much of the stream
    wait is not taken for one that has read nothing for it.
    """
    driver, stats = _Driver(operator, stream, clock), operator.stats
    most_rows = max(stream.num_rows // _PUSHES, 1)
    rows = max(most_rows // 64, 1)

    def go_on(until_left: int, most: _Work) -> None:
        nonlocal rows
        start = _Work.of(stats)
        while driver.left > until_left and (_Work.of(stats) - start).within(most):
            before = _Work.of(stats)
            driver.push(rows)
            if (_Work.of(stats) - before).within(_QUICK):
                rows = min(2 * rows, most_rows)

    go_on(stream.num_rows * 3 // 4, SIMULATED_WARM)
    driver.flush()
    warmed, start_s = driver.pushed, _Work.of(stats).disk_s
    go_on(0, SIMULATED_TIMED)
    driver.flush()
    driver.check()
    return Rate(driver.pushed - warmed, _Work.of(stats).disk_s - start_s)
