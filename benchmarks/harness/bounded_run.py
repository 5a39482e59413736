"""Bounded runs of one operator over one stream, timed by this machine's clock or by a simulated disk.

A stream is one record batch, pushed in slices. Each of its tuples has one match in R, so every run checks its results:
their number equals that of the tuples, and each tuple occurs once (by the sum of the positions in the stream).
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
_WARM_SHARE = 8  # at most 1 / _WARM_SHARE of the stream is for the warm-up
_PUSHES = 80  # least number of pushes for a whole stream
_QUICK_S = 0.05  # after a faster push, the next one has twice the tuples

SEEK_S, TRANSFER_S, SIMULATED_PAGE_BYTES = 0.008, 0.0001, 8192
"""The papers' disk. SSIJ IV-D charges C(N) = S + T * N for N blocks of 8192 bytes (SSIJ Table II); MESH (2) calls it
c_I/O(b). No paper gives S and T: 8 ms and 0.1 ms (80 MB/s) are typical of hard disks of that time."""


@dataclass(frozen=True)
class _Work:
    """Cost of a run so far, in counts that are the same in every run."""

    disk_s: float
    steps: int

    @classmethod
    def of(cls, stats: JoinStats) -> _Work:
        """Derive the cost from counts; it includes reads that are only counted, as those of the LMDB tree."""
        return cls(stats.pages_seek * SEEK_S + stats.pages_read * TRANSFER_S, stats.steps)

    def __sub__(self, other: _Work) -> _Work:
        return _Work(self.disk_s - other.disk_s, self.steps - other.steps)

    def within(self, most: _Work) -> bool:
        return self.disk_s <= most.disk_s and self.steps <= most.steps


SIMULATED_WARM, SIMULATED_TIMED = _Work(20.0, 20_000), _Work(60.0, 20_000)
_QUICK = _Work(0.5, 500)  # like _QUICK_S, for a simulated disk


@dataclass(frozen=True)
class Rate:
    """Number of tuples and the seconds they took; 0 seconds on a simulated disk without a read."""

    tuples: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.tuples / self.seconds if self.seconds else math.inf


class ArrivalClock:
    """Clock of a stream that arrives faster than any join can process; it stands still while an operator works.

    A join that tunes itself by its clock then runs at its highest rate. By this machine's clock it would measure its
    own processing rate as the arrival rate, and use only the memory needed for that.
    """

    def __init__(self, per_second: float = 1e9) -> None:
        self._per_second = per_second
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def arrive(self, rows: int) -> None:
        self._now_s += rows / self._per_second


class _Driver:
    """Pushes a stream to an operator and checks the results."""

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
        """Push the next tuples; after the last one the stream starts again."""
        tuples = self._stream.slice(self.pushed % self._stream.num_rows, rows)
        self.clock.arrive(tuples.num_rows)
        self._count(self.operator.push(tuples))
        self.pushed += tuples.num_rows

    def go_on_with(self, stream: pa.RecordBatch) -> None:
        """Switch to another stream, after all results of the previous one are out."""
        self._stream, self.pushed, self._joined, self._positions = stream, 0, 0, 0

    def flush(self) -> None:
        self._count(self.operator.flush())

    def check(self) -> None:
        """Raise an error unless every pushed tuple has exactly one result."""
        seq, (times, more) = self._stream.column("seq"), divmod(self.pushed, self._stream.num_rows)
        expected = times * pc.sum(seq).as_py() + (pc.sum(seq.slice(0, more)).as_py() or 0)
        if (self._joined, self._positions) != (self.pushed, expected):
            raise RuntimeError(
                f"{self.operator.name} gave {self._joined} results for {self.pushed} tuples with one match each, "
                f"and their positions add up to {self._positions} instead of {expected}"
            )

    def _count(self, results: Iterable[pa.RecordBatch]) -> None:
        for batch in results:
            self._joined += batch.num_rows
            self._positions += pc.sum(batch.column("seq")).as_py() or 0


class TimedRuns:
    """Runs of an operator over a repeating stream, timed by this machine's clock.

    If ``fresh`` is given, it draws new tuples for each run. Otherwise a cache could, after a while, hold all keys of a
    skewed stream and answer every tuple, which it could not on an endless stream.

    The constructor does a warm-up, which shows how long a flush takes, and an uncounted run, which touches all memory
    once: on a virtual machine, getting the memory can take longer than the join.
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
        """Time one run, which ends with a flush.

        It pushes ``tuples`` tuples if given. Otherwise it pushes for a share of ``TIMED_S``, or until the waiting
        tuples would take more than a share of ``DRAIN_S`` to flush.
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
        """Flush, and update the most tuples that may wait: the more wait, the less time each takes."""
        waiting, start = self._operator.stats.rows_waiting, time.perf_counter()
        self._driver.flush()
        if waiting:
            most = self._share * DRAIN_S * waiting / (time.perf_counter() - start)
            self._most_waiting = most if math.isinf(self._most_waiting) else max(self._most_waiting, most)


def simulated_rate(operator: SemiStreamJoin, stream: pa.RecordBatch, clock: ArrivalClock) -> Rate:
    """Return tuples per second of simulated disk time alone, which is the same in every run.

    As in the papers (MESH 5), the rate is measured after a warm-up. Each of the two phases ends with its part of the
    stream, or when ``SIMULATED_WARM`` or ``SIMULATED_TIMED`` is used up, and then with a flush. Without the flush, an
    operator that lets many tuples wait would not pay for their reads.
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
