"""KeptJoin: the operator of a key partition, and its position in the partition's log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.spark.windows.archive_files import Departures
from semistream.spark.windows.packed_rows import read_message
from semistream.spark.windows.state_log import LogEntry, LogHeader, WindowLog
from semistream.spark.windows.window_plan import WindowPlan
from semistream.windows import WindowStats
from semistream.windows.streams.event_time import SIDES

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BySide = tuple[list[pa.RecordBatch], list[pa.RecordBatch]]


class KeptJoin:
    """Operator that has applied all log entries before ``next``, the last of which has the ``stamp``.

    Rows without a time do not enter the operator. They are returned and counted as late.
    """

    def __init__(self, plan: WindowPlan) -> None:
        self._plan = plan
        self._departures = None if plan.archive is None else Departures()
        self._join = plan.open_join(self._departures)
        self._untimed: BySide = ([], [])
        self._untimed_rows = [0, 0]
        self.stamp = ""
        self.next = 0

    @classmethod
    def of(cls, plan: WindowPlan, header: LogHeader, log: WindowLog) -> KeptJoin:
        """Rebuild the operator of a partition from its log: restore the snapshot, and join the entries since again.

        Results, departures and late rows of these entries are dropped: they were output before.
        """
        kept = cls(plan)
        if header.chunks:
            kept._restore(log.snapshot(header))
        for entry in log.entries(header.first, header.next):
            for _ in kept.apply(entry):
                pass
        kept.take_late()
        kept.take_departed()
        kept.stamp, kept.next = header.stamp, header.next
        return kept

    def stands_at(self, stamp: str, number: int) -> bool:
        """True if the next entry is ``number``, and the last one has the ``stamp``."""
        return (self.stamp, self.next) == (stamp, number)

    def apply(self, entry: LogEntry) -> Iterator[pa.RecordBatch]:
        """Apply the entry of a micro-batch; yield the results.

        Rows are pushed before the watermark advances, so that it makes no row of its own micro-batch late.
        """
        for side, content in entry.rows:
            rows = read_message(content)
            times = rows.column(self._plan.times[SIDES[side]])
            if times.null_count:
                self._untimed[side].append(rows.filter(pc.is_null(times)))
                self._untimed_rows[side] += times.null_count
                rows = rows.filter(pc.is_valid(times))
            yield from self._join.push(SIDES[side], rows)
        if entry.watermark_ms > 0:  # 0: Spark has no watermark yet
            yield from self._join.advance(self._instant(entry.watermark_ms))
        self._join.expire()

    def take_late(self) -> BySide:
        """Return the rows that came late, or without a time, since the last call."""
        untimed, self._untimed = self._untimed, ([], [])
        return [*self._join.take_late("left"), *untimed[0]], [*self._join.take_late("right"), *untimed[1]]

    def take_departed(self) -> BySide:
        """Return the rows that left since the last call; none without an archive."""
        return ([], []) if self._departures is None else self._departures.take()

    def stats(self) -> WindowStats:
        """Return the operator's statistics, with rows without a time counted as late."""
        stats = self._join.stats
        for counts, untimed in zip((stats.left, stats.right), self._untimed_rows, strict=True):
            counts.late += untimed
            counts.rows_in += untimed
        return stats

    def written(self) -> bytes:
        """Serialize the operator's state."""
        return write_tables({**self._join.state(), "untimed": pa.table({"rows": np.array(self._untimed_rows)})})

    def _restore(self, content: bytes) -> None:
        tables = read_tables(content)
        self._untimed_rows = tables.pop("untimed").column(0).to_pylist()
        self._join.restore(tables)

    def _instant(self, watermark_ms: int) -> datetime:
        """Convert a watermark to a datetime, with a time zone if the streams' times have one."""
        time = _EPOCH + timedelta(milliseconds=watermark_ms)
        has_zone = self._plan.left.field(self._plan.times["left"]).type.tz is not None
        return time if has_zone else time.replace(tzinfo=None)


def write_tables(tables: dict[str, pa.Table]) -> bytes:
    """Serialize tables by name: a line of JSON with names and lengths, then an Arrow IPC stream for each.

    >>> read_tables(write_tables({"a": pa.table({"x": [1]}), "b": pa.table({"y": ["z"]})}))["b"].to_pydict()
    {'y': ['z']}
    """
    streams = {name: _stream(table) for name, table in tables.items()}
    lengths = json.dumps({name: len(content) for name, content in streams.items()}).encode()
    return b"\n".join([lengths, b"".join(streams.values())])


def read_tables(content: bytes) -> dict[str, pa.Table]:
    """Read tables from the output of `write_tables`."""
    end = content.index(b"\n")
    at, tables = end + 1, {}
    for name, length in json.loads(content[:end]).items():
        tables[name] = pa.ipc.open_stream(content[at : at + length]).read_all()  # the slice is an aligned copy
        at += length
    return tables


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content
