"""When waiting tuples must be through, what that leaves for the work, and how late those were that were late."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.relation.disk_costs import DiskCosts

Clock = Callable[[], float]
Seconds = npt.NDArray[np.float64]

DEADLINE_COLUMN = "_deadline"
_TICK_S = 0.001  # deadlines are told apart by milliseconds


@dataclass(frozen=True)
class DeadlineRule:
    """Which deadline a row has: ``seconds`` after it was pushed, or what a ``column`` says.

    A column of numbers says how many seconds after the push, one of timestamps the time itself, on a clock that counts
    from 1970 (``time.time``). A row with a null there has no deadline.
    """

    seconds: float | None
    column: str | None

    @classmethod
    def of(cls, deadline_s: float | str | None, stream_schema: pa.Schema) -> DeadlineRule | None:
        """The rule as a user writes it: seconds, or a column's name."""
        if deadline_s is None:
            return None
        if isinstance(deadline_s, str):
            if deadline_s not in stream_schema.names:
                raise ColumnNotFound(deadline_s, stream_schema.names, where="the stream")
            type_ = stream_schema.field(deadline_s).type
            t = pa.types
            if not (t.is_integer(type_) or t.is_floating(type_) or t.is_timestamp(type_)):
                raise InvalidArgument(
                    f"the deadline column {deadline_s!r} is {type_}; give seconds as a number, or a timestamp."
                )
            return cls(None, deadline_s)
        if not (math.isfinite(deadline_s) and deadline_s >= 0):
            raise InvalidArgument(f"deadline_s is {deadline_s}; give seconds from 0 on, or the name of a column.")
        return cls(float(deadline_s), None)

    def deadlines(self, batch: pa.RecordBatch, now_s: float) -> pa.Array:
        """The time on the clock by which each row must be through; infinity if it has no deadline."""
        if self.seconds is not None:
            return pa.array(np.full(batch.num_rows, now_s + self.seconds))
        column = batch.column(self.column)
        if pa.types.is_timestamp(column.type):
            per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
            times = pc.divide(pc.cast(column.view(pa.int64()), pa.float64()), float(per_second))
        else:
            times = pc.add(pc.cast(column, pa.float64(), safe=False), now_s)
        return pc.fill_null(times, math.inf)


class Deadlines:
    """The deadlines of the tuples that wait, in ticks, and the lateness of those that are through."""

    def __init__(self, rule: DeadlineRule, clock: Clock = time.monotonic) -> None:
        self.rule = rule
        self.clock = clock
        self._waiting: dict[int, int] = {}  # tuples by tick
        self._ticks: list[int] = []  # a heap of the keys above
        self.late = 0
        self.worst_lateness_s = 0.0

    def stamp(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with a column of their deadlines; from now on they wait."""
        stamped = self.rule.deadlines(batch, self.clock())
        self.wait(stamped.to_numpy())
        return batch.append_column(pa.field(DEADLINE_COLUMN, pa.float64(), nullable=False), stamped)

    def wait(self, deadlines: Seconds) -> None:
        """Tuples with these deadlines wait."""
        for tick, rows in zip(*_by_tick(deadlines), strict=True):
            if tick not in self._waiting:
                heapq.heappush(self._ticks, tick)
            self._waiting[tick] = self._waiting.get(tick, 0) + rows

    def leave(self, deadlines: Seconds) -> None:
        """Tuples with these deadlines are through now."""
        lateness = self.clock() - deadlines
        self.late += int(np.count_nonzero(lateness > 0))
        self.worst_lateness_s = max(self.worst_lateness_s, float(lateness.max(initial=0.0)))
        for tick, rows in zip(*_by_tick(deadlines), strict=True):
            self._waiting[tick] -= rows

    @property
    def earliest_s(self) -> float:
        """The first deadline of a tuple that waits; infinity if none has one."""
        while self._ticks and not self._waiting[self._ticks[0]]:
            del self._waiting[heapq.heappop(self._ticks)]
        return self._ticks[0] * _TICK_S if self._ticks else math.inf


def _by_tick(deadlines: Seconds) -> tuple[list[int], list[int]]:
    """Deadlines in whole ticks, rounded down, and how many there are of each; those at infinity are left out."""
    finite = deadlines[np.isfinite(deadlines)]
    ticks, counts = np.unique(np.floor(finite / _TICK_S).astype(np.int64), return_counts=True)
    return ticks.tolist(), counts.tolist()


class DrainCost:
    """How long it takes to read and join a number of pages: the cost model of SSIJ IV-F.

    At first every page is taken to be a random read. Then the worst that was measured for about as many pages counts.
    """

    def __init__(self, costs: DiskCosts, page_bytes: float) -> None:
        self._page_s = costs.request_s(int(page_bytes), 1)
        self._worst: dict[int, float] = {}

    def measured(self, pages: int, seconds: float) -> None:
        """Note that draining so many pages took so long."""
        size = pages.bit_length()
        self._worst[size] = max(self._worst.get(size, 0.0), seconds)

    def expected_s(self, pages: int) -> float:
        """Seconds to allow for so many pages."""
        known = self._worst.get(pages.bit_length())
        return pages * self._page_s if known is None else known
