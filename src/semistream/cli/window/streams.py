"""The two streams of ``semistream window``, read whole from files and put in time order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.kernels.array_types import Int64s
from semistream.keys import KeyCodec
from semistream.relation.write.sources import open_source
from semistream.windows import WindowJoin
from semistream.windows.streams.event_time import SIDES, EventTime, TimeColumns, in_order
from semistream.windows.streams.lengths import Windows

_PIECE_ROWS = 1 << 16


@dataclass(frozen=True)
class WindowStreams:
    """Rows of both streams in arrival order, with their times: a column, or positions if ``time`` is None.

    ``on`` maps the left key columns to the right ones. ``unordered`` names the files whose rows were not in time order;
    each row still arrives at its own time.
    """

    tables: tuple[pa.Table, pa.Table]
    times: tuple[Int64s, Int64s]
    on: dict[str, str]
    time: TimeColumns
    unordered: tuple[str, ...]

    @classmethod
    def read(cls, left: Path, right: Path, *, on: dict[str, str], time: TimeColumns, window: Windows) -> WindowStreams:
        """Read two files, checking columns, types and ``window`` before any row."""
        readers = open_source(left), open_source(right)
        schemas = readers[0].schema, readers[1].schema
        WindowJoin(*schemas, on=on, time=time, window=window, policy="random")
        event_time = EventTime.of(*schemas, time)
        tables, times, unordered = [], [], []
        for side, (path, reader) in enumerate(zip((left, right), readers, strict=True)):
            table = reader.read_all()
            instants = _instants(event_time, side, table)
            if not in_order(instants):
                order = np.argsort(instants, kind="stable")
                table, instants = table.take(pa.array(order)), instants[order]
                unordered.append(str(path))
            tables.append(table)
            times.append(instants)
        return cls((tables[0], tables[1]), (times[0], times[1]), on, time, tuple(unordered))

    @property
    def rows(self) -> int:
        """Number of rows in both streams."""
        return sum(times.size for times in self.times)

    @property
    def schemas(self) -> tuple[pa.Schema, pa.Schema]:
        """Schemas of the left and the right stream."""
        return self.tables[0].schema, self.tables[1].schema

    def narrowed(self) -> WindowStreams:
        """Return the same streams with only the key and time columns."""
        tables = []
        for side, table in enumerate(self.tables):
            names = dict.fromkeys(self.on if side == 0 else self.on.values())
            if self.time is not None:
                names[self.time if isinstance(self.time, str) else self.time[SIDES[side]]] = None
            tables.append(table.select(list(names)))
        return WindowStreams((tables[0], tables[1]), self.times, self.on, self.time, self.unordered)

    def operator(self, **options: Any) -> WindowJoin:
        """Create a join of the streams with the ``options`` of `WindowJoin`, letting any number of rows wait."""
        left, right = self.schemas
        return WindowJoin(left, right, on=self.on, time=self.time, max_waiting=self.rows + 1, **options)

    def through(self, join: WindowJoin) -> Iterator[pa.RecordBatch]:
        """Push all rows, always from the stream behind in time, and yield the results."""
        at = [0, 0]
        while waiting := [side for side in range(2) if at[side] < self.tables[side].num_rows]:
            side = min(waiting, key=lambda each: self.times[each][at[each]])
            piece = self.tables[side].slice(at[side], _PIECE_ROWS)
            for batch in piece.to_batches():
                yield from join.push(SIDES[side], batch)
            at[side] += piece.num_rows
        yield from join.finish()

    def head(self, rows: int) -> WindowStreams:
        """Return the first ``rows`` rows of each stream."""
        tables = self.tables[0].slice(0, rows), self.tables[1].slice(0, rows)
        return WindowStreams(tables, (self.times[0][:rows], self.times[1][:rows]), self.on, self.time, self.unordered)

    def keys(self) -> tuple[pa.Table, pa.Table]:
        """Return the key columns of both streams with equal types.

        Columns whose types differ become codes, equal where the keys are equal.
        """
        pairs = [_alike(self.tables[0].column(name), self.tables[1].column(other)) for name, other in self.on.items()]
        names = [str(number) for number in range(len(pairs))]
        left, right = (pa.table([pair[side] for pair in pairs], names=names) for side in range(2))
        return left, right


def _instants(event_time: EventTime, side: int, table: pa.Table) -> Int64s:
    if event_time.names is None:
        return np.arange(table.num_rows, dtype=np.int64)
    column = table.select([event_time.names[side]]).combine_chunks()
    parts = [event_time.instants(side, batch) for batch in column.to_batches()]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _alike(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    if left.type == right.type:
        return left, right
    codec = KeyCodec.of(["key"], [right.type])
    if not codec.ordered:  # same values, another array layout
        return left.cast(right.type), right
    coded = []
    for column in (left, right):
        codes, possible = codec.encode([pa.concat_arrays([pa.array([], column.type), *column.chunks])])
        coded.append(pa.chunked_array([pa.array(codes, mask=None if possible is None else ~possible)]))
    return coded[0], coded[1]
