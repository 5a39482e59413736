"""Deadlines of waiting tuples: when each is due, how long a drain takes, and how late tuples were."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.relation.read.disk_costs import DiskCosts

Clock = Callable[[], float]
Seconds = npt.NDArray[np.float64]

DEADLINE_COLUMN = "_semistream_deadline"
_TICK_S = 0.001  # shortest tick: deadlines are rounded down to milliseconds
_MOST_TICKS = 512  # ticks are made longer rather than exceed this number
_TICK_BYTES = 48  # a tick and its rows, three times while they are merged
_ROW_BYTES = 64  # of a row while its deadline is computed and merged with the others
_MOST_ROWS = 1 << 16
_LEAST_ROWS = 16
_FARTHEST = 2.0**62  # in ticks
_KEPT = 16  # measured drains kept for each size
_MARGIN = 1.25  # the next drain may be slower than the slowest of these


@dataclass(frozen=True)
class DeadlineRule:
    """The deadline of a row: ``seconds`` after its push, or the value of a ``column``.

    A numeric column holds seconds after the push; a timestamp column holds the time itself, on a clock that counts from
    1970 (``time.time``). A row with a null or non-finite value has no deadline.
    """

    seconds: float | None
    column: str | None

    @classmethod
    def of(cls, deadline_s: float | str | None, stream_schema: pa.Schema, clock: Clock) -> DeadlineRule | None:
        """Build a rule from the user's argument: seconds, or the name of a column; None for no deadlines."""
        if deadline_s is None:
            return None
        if isinstance(deadline_s, str):
            _require_deadline_column(deadline_s, stream_schema, clock)
            return cls(None, deadline_s)
        if not (math.isfinite(deadline_s) and deadline_s >= 0):
            raise InvalidArgument(f"deadline_s is {deadline_s}; give 0 or more seconds, or the name of a column.")
        return cls(float(deadline_s), None)

    def deadlines(self, batch: pa.RecordBatch, now_s: float) -> pa.Array:
        """Return the clock time by which each row must be finished; infinity if it has no deadline."""
        if self.seconds is not None:
            return pa.array(np.full(batch.num_rows, now_s + self.seconds))
        column = batch.column(self.column)
        if pa.types.is_timestamp(column.type):
            per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
            times = pc.divide(pc.cast(column.view(pa.int64()), pa.float64(), safe=False), float(per_second))
        else:
            times = pc.add(pc.cast(column, pa.float64(), safe=False), now_s)
        return pc.if_else(pc.fill_null(pc.is_finite(times), False), times, math.inf)


def _require_deadline_column(name: str, stream_schema: pa.Schema, clock: Clock) -> None:
    if name not in stream_schema.names:
        raise ColumnNotFound(name, stream_schema.names, where="the stream")
    type_ = stream_schema.field(name).type
    t = pa.types
    if not (t.is_integer(type_) or t.is_floating(type_) or t.is_timestamp(type_)):
        raise InvalidArgument(f"the deadline column {name!r} is {type_}; give seconds as a number, or a timestamp.")
    if t.is_timestamp(type_) and clock in (time.monotonic, time.perf_counter):
        raise InvalidArgument(
            f"the deadline column {name!r} is {type_}, but {clock.__name__} does not count from 1970; "
            "give clock=time.time."
        )


class Lateness(NamedTuple):
    """Number of tuples finished after their deadline, and the greatest delay in seconds."""

    late: int = 0
    worst_s: float = 0.0


class Deadlines:
    """The deadlines of waiting tuples, counted by tick, and the lateness of finished ones.

    It never exceeds `memory_bytes`: if there are too many distinct deadlines, ticks are made longer. Deadlines are
    rounded down to ticks, so tuples may be treated as due slightly early, never late.
    """

    def __init__(self, rule: DeadlineRule, clock: Clock = time.monotonic) -> None:
        self.rule = rule
        self.clock = clock
        self.lateness = Lateness()
        self.forget()

    @staticmethod
    def rows_at_once(budget_bytes: int) -> int:
        """Return the most rows to pass to `stamp` at once, in a budget of ``budget_bytes``."""
        return min(max(budget_bytes // 16 // _ROW_BYTES, _LEAST_ROWS), _MOST_ROWS)

    @staticmethod
    def memory_bytes(budget_bytes: int) -> int:
        """Return the bytes that deadlines take of a budget of ``budget_bytes``."""
        return _MOST_TICKS * _TICK_BYTES + Deadlines.rows_at_once(budget_bytes) * _ROW_BYTES

    def forget(self) -> None:
        """Reset to no waiting tuples."""
        self._length = 1  # of a tick, in multiples of the shortest
        self._ticks = np.empty(0, np.int64)  # ascending
        self._rows = np.empty(0, np.int64)  # waiting tuples by tick

    def stamp(self, batch: pa.RecordBatch, pushed_s: float) -> pa.RecordBatch:
        """Return the rows pushed at ``pushed_s`` with a column of their deadlines, and count them as waiting."""
        deadlines = self.rule.deadlines(batch, pushed_s)
        self._wait(deadlines.to_numpy())
        return batch.append_column(pa.field(DEADLINE_COLUMN, pa.float64(), nullable=False), deadlines)

    def _wait(self, deadlines: Seconds) -> None:
        if not self._rows.any():
            self.forget()
        ticks, rows = self._by_tick(deadlines)
        while ticks.size > _MOST_TICKS:
            self._coarsen()
            ticks, rows = _merged(ticks // 2, rows)
        self._ticks, self._rows = _merged(np.concatenate([self._ticks, ticks]), np.concatenate([self._rows, rows]))
        while self._ticks.size > _MOST_TICKS:
            self._coarsen()

    def leave(self, deadlines: Seconds) -> None:
        """Record that tuples with these deadlines are finished now."""
        lateness = self.clock() - deadlines
        self.lateness = Lateness(
            self.lateness.late + int(np.count_nonzero(lateness > 0)),
            max(self.lateness.worst_s, float(lateness.max(initial=0.0))),
        )
        ticks, rows = self._by_tick(deadlines)
        self._rows[np.searchsorted(self._ticks, ticks)] -= rows

    @property
    def earliest_s(self) -> float:
        """Earliest deadline of a waiting tuple, rounded down to a tick; infinity if none has a deadline."""
        waiting = np.flatnonzero(self._rows)
        return float(self._ticks[waiting[0]]) * self._length * _TICK_S if waiting.size else math.inf

    def _by_tick(self, deadlines: Seconds) -> tuple[Int64s, Int64s]:
        """Return the distinct deadlines in whole ticks, rounded down, and the count of each; infinity is left out."""
        ticks = np.floor(np.clip(deadlines[deadlines < math.inf] / _TICK_S, -_FARTHEST, _FARTHEST)).astype(np.int64)
        return _merged(ticks // self._length, np.ones(ticks.size, np.int64))

    def _coarsen(self) -> None:
        """Double the length of a tick."""
        self._length *= 2
        self._ticks, self._rows = _merged(self._ticks // 2, self._rows)


def _merged(ticks: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct ticks with rows, in ascending order, and the sum of each tick's rows."""
    ticks, rows = ticks[rows > 0], rows[rows > 0]
    ticks, place = np.unique(ticks, return_inverse=True)
    total = np.zeros(ticks.size, np.int64)
    np.add.at(total, place, rows)
    return ticks, total


class DrainCost:
    """Expected time to read and join a number of pages: the cost model of SSIJ IV-F.

    Before any measurement, every page counts as a random read. After that, the estimate is the worst time per page of
    the last drains of about as many pages, plus a margin. Older drains are forgotten, so a jump of the clock does no
    lasting harm.
    """

    def __init__(self, costs: DiskCosts, page_bytes: float) -> None:
        self._page_s = costs.request_s(int(page_bytes), 1)
        self._seen: dict[int, deque[float]] = {}  # seconds per page, by the bit length of the number of pages

    def measured(self, pages: int, seconds: float) -> None:
        """Record that draining ``pages`` pages took ``seconds``."""
        if pages:
            self._seen.setdefault(pages.bit_length(), deque(maxlen=_KEPT)).append(max(seconds, 0.0) / pages)

    def expected_s(self, pages: int) -> float:
        """Return the seconds to allow for ``pages`` pages."""
        seen = self._seen.get(pages.bit_length())
        return pages * (_MARGIN * max(seen) if seen else self._page_s)
