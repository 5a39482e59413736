"""Stream tuples that wait in memory in the order of their key codes, admission by admission."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.intake import Admitted
from semistream.joins.sorted_ranges import SortedRanges
from semistream.joins.stored_columns import StoredColumn, is_stored
from semistream.kernels.merge import match_ranges
from semistream.kernels.sweep import first_positions, match_levels
from semistream.kernels.types import Int32s, Int64s
from semistream.relation import PageRun


@dataclass
class Level:
    """Tuples that were admitted together: slots ``begin`` to ``end``, of which those before ``matchable`` are in the
    order of their codes and the others can match nothing. They meet the pages that are passed from ``enters_at`` to
    before ``leaves_at``, counted since the start: all of R once.
    """

    begin: int
    matchable: int
    end: int
    enters_at: int
    leaves_at: int
    sizes: Int64s
    rest: pa.RecordBatch | None = field(repr=False)  # columns that no array of slots can hold, in the same order


class LevelView(NamedTuple):
    """Levels as arrays: see `Level`."""

    begin: Int64s
    matchable: Int64s
    enters_at: Int64s
    leaves_at: Int64s


class StreamBuffer:
    """Up to ``slots`` stream tuples in levels of ascending codes, that leave level by level as they came.

    A tuple costs its values, 8 bytes for its code (none if the code is a column of the stream) and a flag: no pointer,
    no hash table, no second copy; 16 bytes more if it asks for a range. Columns of fixed width stand in arrays by slot,
    in the order of the level; strings and nested values stand in one Arrow batch per level. Positions of tuples are
    slots.
    """

    def __init__(self, schema: pa.Schema, slots: int, code_column: int | None, *, single_codes: bool = True) -> None:
        self.slots = slots
        self.levels: deque[Level] = deque()
        self.codes = np.empty(slots, np.int64)
        self.matched = np.zeros(slots, np.bool_)
        self._high, self._reach = (np.empty(0 if single_codes else slots, np.int64) for _ in range(2))
        self._single_codes = single_codes
        self._schema = schema
        self._stored = {
            i: StoredColumn(type_, slots, self.codes if i == code_column else None)
            for i, type_ in enumerate(schema.types)
            if is_stored(type_)
        }
        self._rest = [i for i in range(len(schema)) if i not in self._stored]
        self._next = 0  # where the next level begins
        self._view: LevelView | None = None

    @staticmethod
    def index_bytes(slots: int, *, code_stored: bool, single_codes: bool = True) -> int:
        """Bytes of ``slots`` besides the tuples themselves.

        ``code_stored`` says whether the code is a column of the stream, ``single_codes`` whether each tuple asks for
        one code, and not for a range.
        """
        return slots * ((0 if code_stored else 8) + 1 + (0 if single_codes else 16))

    @property
    def room(self) -> int:
        """Tuples that can be admitted now, as one level."""
        if not self.levels:
            self._next = 0
            return self.slots
        first = self.levels[0].begin
        if self._next > first:
            if self._next < self.slots:
                return self.slots - self._next
            self._next = 0
        return first - self._next

    def admit(self, tuples: Admitted, enters_at: int, leaves_at: int) -> SortedRanges:
        """Store tuples as a level; gives what those that can match ask for, in order."""
        ranges = SortedRanges.of(tuples.ranges, np.arange(tuples.sizes.size))
        order, possible = ranges.tuples, tuples.ranges.possible
        if possible is not None:
            order = np.concatenate([order, np.flatnonzero(~possible)])
        begin, end = self._next, self._next + order.size
        matchable = begin + ranges.size
        self.codes[begin:matchable] = ranges.low
        if ranges.high is not None and ranges.reach is not None:
            self._high[begin:matchable], self._reach[begin:matchable] = ranges.high, ranges.reach
        self.matched[begin:end] = False
        for i, column in self._stored.items():
            column.put(begin, tuples.batch.column(i), order)
        rest, sizes = None, tuples.sizes
        if self._rest:
            rest = tuples.batch.select(self._rest).take(pa.array(order))
            sizes = sizes[order]
        self.levels.append(Level(begin, matchable, end, enters_at, leaves_at, sizes, rest))
        self._view = None
        self._next = end
        return ranges

    def leave(self) -> Level:
        """Let the oldest level go."""
        self._view = None
        return self.levels.popleft()

    def view(self) -> LevelView:
        """The levels as they are now, for `probe`: it may go on in another thread while tuples are admitted."""
        if self._view is None:
            levels = [(o.begin, o.matchable, o.enters_at, o.leaves_at) for o in self.levels]
            self._view = LevelView(*np.array(levels, np.int64).reshape(-1, 4).T.copy())
        return self._view

    def probe(
        self, view: LevelView, run: PageRun, passed: Int64s, position: Int64s, page: Int32s, row: Int32s
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Pairs of a slot and a row of the run whose code it asks for, as many at a time as the arrays can hold.

        ``passed[i]`` counts the pages of R that were passed when page i of the run is met. A run is read from before a
        level enters or after, so that its first page tells.
        """
        pages = np.searchsorted(passed, view.leaves_at, "left")
        pages[view.enters_at > passed[0]] = 0
        if not self._single_codes:
            yield from self._probe_ranges(view, run, pages, position, page, row)
            return
        cursors = first_positions(self.codes, view.begin, view.matchable, run.words[run.code_starts[0]])
        cursor = np.array([0, 0, -1, -1], np.int64)
        while cursor[0] < run.pages.size:
            found = match_levels(
                run.words, run.code_starts, run.rows, self.codes, view.begin, view.matchable, pages, cursors, cursor,
                position, page, row,
            )  # fmt: skip
            yield position[:found], page[:found], row[:found]

    def _probe_ranges(
        self, view: LevelView, run: PageRun, pages: Int64s, position: Int64s, page: Int32s, row: Int32s
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        for begin, end, met in zip(view.begin.tolist(), view.matchable.tolist(), pages.tolist(), strict=True):
            ranges = self.codes[begin:end], self._high[begin:end], self._reach[begin:end]
            cursor = np.array([0, -1, -1], np.int64)
            while cursor[0] < met:
                starts, rows = run.code_starts[:met], run.rows[:met]
                found = int(match_ranges(run.words, starts, rows, *ranges, cursor, position, page, row))
                yield position[:found] + begin, page[:found], row[:found]

    def mark(self, slots: Int64s) -> None:
        """Remember that these tuples met a partner."""
        self.matched[slots] = True

    def take(self, positions: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """Copies of some tuples."""
        wanted = range(len(self._schema)) if columns is None else columns
        rest = {}
        if any(i not in self._stored for i in wanted):
            rest = dict(zip(self._rest, self._take_rest(positions), strict=True))
        return [self._stored[i].take(positions) if i in self._stored else rest[i] for i in wanted]

    def row_bytes(self, positions: Int64s) -> Int64s:
        """Bytes of some tuples."""
        order, parts = self._parts(positions)
        sizes = np.empty(positions.size, np.int64)
        sizes[order] = np.concatenate([level.sizes[rows] for level, rows in parts]) if parts else 0
        return sizes

    def _take_rest(self, positions: Int64s) -> list[pa.Array]:
        order, parts = self._parts(positions)
        if not parts:
            return [pa.array([], self._schema.types[i]) for i in self._rest]
        taken = [level.rest.take(pa.array(rows)) for level, rows in parts if level.rest is not None]
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return list(pa.concat_batches(taken).take(pa.array(back)).columns)

    def _parts(self, positions: Int64s) -> tuple[npt.NDArray[np.intp], list[tuple[Level, Int64s]]]:
        """Positions as rows of levels, and the order in which they stand there."""
        levels = sorted(self.levels, key=lambda level: level.begin)
        number = np.searchsorted(np.array([level.begin for level in levels]), positions, "right") - 1
        order = np.argsort(number, kind="stable")
        number, positions = number[order], positions[order]
        begins = np.flatnonzero(np.diff(number, prepend=-1)).tolist()
        return order, [
            (levels[int(number[a])], positions[a:b] - levels[int(number[a])].begin)
            for a, b in zip(begins, [*begins[1:], positions.size], strict=True)
        ]
