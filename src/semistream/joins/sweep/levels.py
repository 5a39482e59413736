"""Levels of waiting stream tuples, and a view of them to join against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.sweep.byte_ring import Place
from semistream.joins.sweep.kernels.match import match_levels
from semistream.joins.sweep.kernels.pack import mark_tuples, take_packed
from semistream.joins.sweep.packing import Packed, PackedBinary, PackedColumn, PackedLevels
from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.merge import match_ranges
from semistream.relation import PageRun
from semistream.relation.format.page_layout import ColumnLayout
from semistream.relation.format.row_sizes import add_sizes, fixed_row_bytes
from semistream.relation.read.row_gatherer import packed_bits

NARROW = 4  # bytes of a code stored as a distance
_TABLE_ROWS = 1 << 12  # most entries of the table that locates codes in a page
_ALL_VALID = Packed(0, 0, 1)
_NO_FLAGS = np.empty(0, np.int64)


@dataclass
class Level:
    """Stream tuples admitted together.

    The first ``matchable`` tuples are in code order; the others cannot match. ``number`` counts levels since the
    start. The tuples meet the pages passed from ``enters_at`` up to, not including, ``leaves_at`` (page counts since
    the start): all of R once.
    """

    rows: int
    matchable: int
    place: Place
    matched: int  # position of its flags in the block
    codes: Packed
    ranges: tuple[Packed, ...]  # the ends of ranges, and their running maximum
    columns: Mapping[int, Sequence[Packed]]  # the parts of each column
    valid: Mapping[int, Packed]  # validity flags of the columns with nulls
    sizes: Int64s | None = field(repr=False)  # bytes of whole tuples, if some columns are unpacked
    rest: pa.RecordBatch | None = field(repr=False)  # the unpacked columns, in the same order
    number: int = 0
    enters_at: int = 0
    leaves_at: int = 0
    charged: int = 0  # bytes charged for ``rest``

    def move_to(self, begin: int) -> None:
        """Update all positions after the level's bytes have moved to ``begin``."""
        by, self.place = begin - self.place.begin, Place(begin, self.place.nbytes)
        if by == 0:
            return
        self.matched += by
        self.codes = _moved(self.codes, by)
        self.columns = {i: [_moved(part, by) for part in parts] for i, parts in self.columns.items()}
        self.valid = {i: _moved(flags, by) for i, flags in self.valid.items()}

    def numbers(self, begin: int, end: int) -> Int64s:
        """Return the numbers of tuples ``begin`` up to ``end``; `semistream.joins.sweep.kernels.pack` defines them."""
        first = self.number << 32
        return np.arange(first + begin, first + end)


def _moved(packed: Packed, by: int) -> Packed:
    return Packed(packed.at + by, packed.width, packed.base)


class LevelView:
    """A snapshot of the levels, oldest first; methods identify tuples by their numbers.

    It stays valid while levels are added, until a level leaves or is compacted.
    """

    def __init__(
        self,
        block: Bytes,
        levels: Sequence[Level],
        schema: pa.Schema,
        columns: Mapping[int, PackedColumn | PackedBinary],
        code_shift: int,
    ) -> None:
        self._block = block
        self._levels = levels
        self._schema = schema
        self._columns = columns
        self._code_shift = code_shift
        counts = [(o.number << 32, o.matchable, o.enters_at, o.leaves_at, o.matched) for o in levels]
        self._begin, self._size, self._enters_at, self._leaves_at, self._matched = (
            np.array(counts, np.int64).reshape(-1, 5).T.copy()
        )
        self._first = levels[0].number if levels else 0
        self._codes = PackedLevels.of([level.codes for level in levels])
        self._narrow = self._codes.width == NARROW
        self._cursors = np.zeros(len(levels), np.int64)  # position in each level after the last run
        self._table = np.empty(_TABLE_ROWS, np.int32)

    def probe(
        self, run: PageRun, passed: Int64s, number: Int64s, page: Int32s, row: Int32s, *, marks: bool
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Yield the pairs of a tuple and a row of the run with a code it asks for, in pieces that fill the arrays.

        ``passed[i]`` is the count of passed pages at page i of the run. A run is requested entirely before or entirely
        after a level enters, so its first page decides whether the level meets it. With ``marks`` the tuples of all
        pairs are flagged as matched; the pairs must then need no further check.
        """
        if self._levels and self._levels[0].ranges:
            for pairs in self._probe_ranges(run, passed, number, page, row):
                if marks:
                    self.mark(pairs[0])
                yield pairs
            return
        flags = self._matched if marks else _NO_FLAGS
        cursor, pages_met = np.array([0, 0, -1, -1], np.int64), self._pages_met(passed)
        while cursor[0] < run.pages.size:
            found = match_levels(
                run.words, run.code_starts, run.rows, pages_met, self._block, self._codes.at, self._narrow,
                self._codes.base, self._code_shift, self._size, self._begin, flags, self._cursors, self._table, cursor,
                number, page, row,
            )  # fmt: skip
            yield number[:found], page[:found], row[:found]

    def _pages_met(self, passed: Int64s) -> Int64s:
        """Return how many of the run's first pages each level meets."""
        pages = np.searchsorted(passed, self._leaves_at, "left")
        pages[self._enters_at > passed[0]] = 0
        return pages

    def _probe_ranges(
        self, run: PageRun, passed: Int64s, number: Int64s, page: Int32s, row: Int32s
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        for level, met in zip(self._levels, self._pages_met(passed).tolist(), strict=True):
            ranges = [
                self._block[packed.at : packed.at + 8 * level.matchable].view(np.int64)
                for packed in (level.codes, *level.ranges)
            ]
            cursor = np.array([0, -1, -1], np.int64)
            while cursor[0] < met:
                starts, rows = run.code_starts[:met], run.rows[:met]
                found = int(match_ranges(run.words, starts, rows, *ranges, cursor, number, page, row))
                yield number[:found] + (level.number << 32), page[:found], row[:found]

    def mark(self, numbers: Int64s) -> None:
        """Flag these tuples as matched."""
        mark_tuples(self._block, self._first, self._matched, numbers)

    def take(self, numbers: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """Copy the given columns of some tuples, by default all columns."""
        wanted = range(len(self._schema)) if columns is None else columns
        rest: dict[int, pa.Array] = {}
        if any(i not in self._columns for i in wanted):
            unpacked = [i for i in range(len(self._schema)) if i not in self._columns]
            rest = dict(zip(unpacked, self._take_rest(numbers, unpacked), strict=True))
        return [self._take_packed(i, numbers) if i in self._columns else rest[i] for i in wanted]

    def _take_packed(self, i: int, numbers: Int64s) -> pa.Array:
        validity = None
        if i in self._valid:
            valid, packed = np.empty(numbers.size, np.int8), self._valid[i]
            take_packed(self._block, self._first, packed.at, packed.width, packed.base, numbers, valid)
            validity = None if valid.all() else packed_bits(valid)
        return self._columns[i].take(self._block, self._first, self._parts[i], numbers, validity)

    @cached_property
    def _parts(self) -> dict[int, list[PackedLevels]]:
        return {
            i: [PackedLevels.of(list(part)) for part in zip(*(level.columns[i] for level in self._levels), strict=True)]
            for i in self._columns
        }

    @cached_property
    def _valid(self) -> dict[int, PackedLevels]:
        return {
            i: PackedLevels.of([level.valid.get(i, _ALL_VALID) for level in self._levels])
            for i in self._columns
            if any(i in level.valid for level in self._levels)
        }

    def same_bytes(
        self, i: int, numbers: Int64s, run: PageRun, column: ColumnLayout, page: Int32s, row: Int32s
    ) -> Bools | None:
        """Compare a string column of tuples with a column of R, pair by pair; return None if all pairs are equal."""
        own = self._columns[i]
        assert isinstance(own, PackedBinary)
        return own.same(self._block, self._first, self._parts[i], numbers, run, column, page, row)

    def row_bytes(self, numbers: Int64s) -> Int64s:
        """Return the unpacked bytes of each of some tuples."""
        if all(i in self._columns for i in range(len(self._schema))):
            sizes = np.broadcast_to(np.int64(fixed_row_bytes(self._schema)), numbers.size)
            for i, column in self._columns.items():
                if isinstance(column, PackedBinary):
                    sizes = add_sizes(sizes, column.lengths(self._block, self._first, self._parts[i], numbers))
            return sizes
        order, parts = self._by_level(numbers)
        sizes = np.empty(numbers.size, np.int64)
        sizes[order] = (
            np.concatenate([level.sizes[rows] for level, rows in parts if level.sizes is not None]) if parts else 0
        )
        return sizes

    def _take_rest(self, numbers: Int64s, columns: list[int]) -> list[pa.Array]:
        order, parts = self._by_level(numbers)
        if not parts:
            return [pa.nulls(0, self._schema.types[i]) for i in columns]
        taken = [level.rest.take(pa.array(rows)) for level, rows in parts if level.rest is not None]
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return list(pa.concat_batches(taken).take(pa.array(back)).columns)

    def _by_level(self, numbers: Int64s) -> tuple[npt.NDArray[np.intp], list[tuple[Level, Int64s]]]:
        """Group tuples by level; return the sort order, and each level with its rows."""
        level = (numbers >> 32) - self._first
        order = np.argsort(level, kind="stable")
        level, numbers = level[order], numbers[order]
        begins = np.flatnonzero(np.diff(level, prepend=-1)).tolist()
        return order, [
            (self._levels[int(level[a])], numbers[a:b] - self._begin[level[a]])
            for a, b in zip(begins, [*begins[1:], numbers.size], strict=True)
        ]

    def matched(self, level: Level) -> Bools:
        """Return the matched flags of a level's tuples."""
        return self._block[level.matched : level.matched + level.rows].view(np.bool_)
