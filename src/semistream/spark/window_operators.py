"""The window joins of a Python worker: operators that outlive a micro-batch as soft state, and are made good by logs."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.spark.window_archive import Departures
from semistream.spark.window_log import LogEntry, LogHeader, WindowLog
from semistream.spark.window_packing import read_message
from semistream.spark.window_plan import WindowPlan
from semistream.windows import WindowJoin, WindowStats
from semistream.windows.sides import SIDES

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class KeptJoin:
    """The operator of one key partition, as it was after the entry that ``stamp`` names; ``next`` is the one to come.

    ``untimed`` counts rows of each side that came without a time, and ``departures`` has what left since it was taken.
    """

    join: WindowJoin
    departures: Departures | None
    stamp: str = ""
    next: int = 0
    untimed: tuple[int, int] = (0, 0)

    @classmethod
    def new(cls, plan: WindowPlan) -> KeptJoin:
        """One that has seen nothing."""
        departures = None if plan.archive is None else Departures()
        return cls(plan.open_join(departures), departures)

    def apply(self, plan: WindowPlan, entry: LogEntry) -> Iterator[pa.RecordBatch]:
        """Take in what a micro-batch brought; gives the results.

        Rows are pushed before the watermark moves, so that what it passes in this micro-batch is not late in it.
        """
        for side, content in entry.rows:
            timed, untimed = _by_time(read_message(content), plan.times[SIDES[side]])
            if untimed is not None:
                self._set_aside(side, untimed)
            yield from self.join.push(SIDES[side], timed)
        if entry.watermark_ms > 0:  # 0: Spark knows of none yet
            yield from self.join.advance(_EPOCH + timedelta(milliseconds=entry.watermark_ms))
        self.join.expire()

    def take_late(self, side: int) -> list[pa.RecordBatch]:
        """Rows that came too late, or without a time, since this was last called."""
        untimed, self._untimed_rows[side][:] = list(self._untimed_rows[side]), []
        return [*self.join.take_late(SIDES[side]), *untimed]

    def stats(self) -> WindowStats:
        """What became of every row; those without a time are late."""
        stats = self.join.stats
        for counts, untimed in zip((stats.left, stats.right), self.untimed, strict=True):
            counts.late += untimed
            counts.rows_in += untimed
        return stats

    def written(self) -> bytes:
        """All that the operator knows, as bytes."""
        tables = {**self.join.state(), "untimed": pa.table({"rows": np.array(self.untimed)})}
        return write_tables(tables)

    def restore(self, content: bytes) -> None:
        """Take over what `written` gave."""
        tables = read_tables(content)
        left, right = tables.pop("untimed").column(0).to_pylist()
        self.untimed = (left, right)
        self.join.restore(tables)

    def __post_init__(self) -> None:
        self._untimed_rows: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])

    def _set_aside(self, side: int, rows: pa.RecordBatch) -> None:
        self._untimed_rows[side].append(rows)
        left, right = self.untimed
        self.untimed = (left + rows.num_rows, right) if side == 0 else (left, right + rows.num_rows)


@dataclass(frozen=True)
class Taken:
    """An operator that stands where it should: it took ``replayed`` entries, and if ``restored`` it is a new one."""

    kept: KeptJoin
    replayed: int
    restored: bool


class WindowJoins:
    """Operators by query and key partition, the one used last at the end; a worker runs one task at a time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], KeptJoin] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, plan: WindowPlan, query: str, group: int, header: LogHeader, log: WindowLog) -> Taken:
        """The operator of a partition where ``header`` says that it stands.

        It is the caller's now: one that fails is never used again.
        """
        kept = self._kept.pop((query, group), None)
        if kept is not None and kept.stamp == header.stamp and kept.next == header.next:
            return Taken(kept, replayed=0, restored=False)
        if kept is not None and header.first <= kept.next < header.next:
            missed = log.entries(kept.next, header.next)
            first = next(missed)
            if first.before == kept.stamp:
                replayed = self._catch_up(kept, plan, header, chain([first], missed))
                return Taken(kept, replayed, restored=False)
        kept = KeptJoin.new(plan)
        if header.chunks:
            kept.restore(log.snapshot(header))
        replayed = self._catch_up(kept, plan, header, log.entries(header.first, header.next))
        return Taken(kept, replayed, restored=bool(header.stamp))

    def put(self, plan: WindowPlan, query: str, group: int, kept: KeptJoin) -> None:
        """Keep an operator for later; those that were used longest ago are let go."""
        self._kept[query, group] = kept
        while len(self._kept) > plan.kept:
            self._kept.popitem(last=False)

    @staticmethod
    def _catch_up(kept: KeptJoin, plan: WindowPlan, header: LogHeader, entries: Iterator[LogEntry]) -> int:
        """Join again what was joined before; results, departures and late rows were given out then."""
        count = 0
        for entry in entries:
            for _ in kept.apply(plan, entry):
                pass
            count += 1
        for side in range(2):
            kept.take_late(side)
        if kept.departures is not None:
            kept.departures.take()
        kept.stamp, kept.next = header.stamp, header.next
        return count


WINDOW_JOINS = WindowJoins()
"""This worker's operators. It is a global because a worker process outlives the tasks it runs, and only a module does."""


def write_tables(tables: dict[str, pa.Table]) -> bytes:
    """Tables by name as one value: a line of JSON with names and lengths, and an Arrow IPC stream for each.

    >>> read_tables(write_tables({"a": pa.table({"x": [1]}), "b": pa.table({"y": ["z"]})}))["b"].to_pydict()
    {'y': ['z']}
    """
    streams = {name: _stream(table) for name, table in tables.items()}
    lengths = json.dumps({name: len(content) for name, content in streams.items()}).encode()
    return b"\n".join([lengths, b"".join(streams.values())])


def read_tables(content: bytes) -> dict[str, pa.Table]:
    """What `write_tables` has written."""
    end = content.index(b"\n")
    at, buffer, tables = end + 1, pa.py_buffer(content), {}
    for name, length in json.loads(content[:end]).items():
        # Aligned anew: a view would begin at any byte.
        tables[name] = pa.ipc.open_stream(buffer.slice(at, length).to_pybytes()).read_all()
        at += length
    return tables


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _by_time(batch: pa.RecordBatch, time: str) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Rows with a time, and those without, if there are any."""
    column = batch.column(time)
    if not column.null_count:
        return batch, None
    return batch.filter(pc.is_valid(column)), batch.filter(pc.is_null(column))
