"""StreamBuffer: waiting stream tuples in sorted levels, packed into one block of bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.sweep.byte_ring import ByteRing, Place
from semistream.joins.sweep.kernels.pack import position_of
from semistream.joins.sweep.levels import NARROW, Level, LevelView
from semistream.joins.sweep.packing import Packed, PackedValues, PackedWriter, RowRanges
from semistream.joins.sweep.row_packing import RowPacking
from semistream.kernels.array_types import Bytes, Int64s
from semistream.kernels.sort import CodeSorter
from semistream.keys import CodeRanges

_OVERHEAD = 24  # most bytes of a level per column, besides its tuples


class StreamBuffer:
    """A buffer of waiting stream tuples, in levels sorted by code; tuples leave by level, or earlier through `keep`.

    A tuple costs its packed values, its code and a flag: no pointer, no hash table, no second copy. Integers of a
    level are stored as distances from the level's minimum. A code mostly takes 4 bytes and a time 2 or 4, so each page
    of R meets many more tuples than would fit unpacked. Strings are stored without the level's common prefix. Nested
    values stay in one Arrow batch per level. ``memory``, if given, is the block to use: ``nbytes`` rounded up to whole
    words.
    """

    def __init__(self, packing: RowPacking, nbytes: int, level_rows: int, *, memory: Bytes | None = None) -> None:
        self.levels: deque[Level] = deque()
        self._ring = ByteRing(nbytes, memory)
        self.packing = packing
        self._sorter = CodeSorter(level_rows)
        self._next = 0  # number of the next level
        self._row_bytes = packing.most_row_bytes
        self._padding = 0
        self._view: LevelView | None = None

    @property
    def widest(self) -> int:
        """Bytes of the widest tuple that fits in the empty buffer."""
        return int(self._ring.block.size) - _OVERHEAD * (len(self.packing.schema) + 2)

    @property
    def capacity(self) -> int:
        """Capacity in tuples, at the current row size."""
        return max(self._ring.block.size // self._row_bytes, 1)

    def room(self, rows: int) -> Place | None:
        """Return a place for a level of ``rows`` at the current row size; None if older levels must leave first."""
        wanted = rows * self._row_bytes + self._padding
        place = self._ring.room(wanted)
        return place if place.nbytes >= wanted or not self.levels else None

    def store(self, place: Place, batch: pa.RecordBatch, sizes: Int64s, ranges: CodeRanges) -> Level | None:
        """Write the leading tuples of ``batch`` that fit in ``place`` as a level; return None if none fits.

        Any thread may call this, one at a time. An empty buffer has room for at least one tuple.
        """
        packing, packed = self.packing, self.packing.pack(batch, ranges)
        self._padding, self._row_bytes = packed.padding, packed.row_bytes
        rows = packed.fitting(batch.num_rows, place.nbytes - packed.padding)
        if rows == 0:
            return None
        order, matchable = self._in_order(ranges.first(rows))
        writer = PackedWriter(self._ring.mover, place.begin)
        stored_codes = writer.put(packed.codes, order)
        columns = {i: [writer.put(part, order) for part in parts] for i, parts in packed.values.items()}
        columns |= {i: some.put(writer, order) for i, some in zip(packing.binary, packed.strings, strict=True)}
        if packing.code_column is not None:
            columns[packing.code_column] = [stored_codes]
        valid = {i: writer.put(_flags(present), order) for i, present in packed.nulls.items()}
        ends: tuple[Packed, ...] = ()
        if ranges.high is not None:
            high = ranges.high[order[:matchable]]
            every = np.arange(matchable)
            ends = tuple(writer.put(PackedValues(v, 8), every) for v in (high, np.maximum.accumulate(high)))
        matched = writer.clear(rows)
        rest = batch.select(packing.unpacked).take(pa.array(order)) if packing.unpacked else None
        return Level(
            rows=rows,
            matchable=matchable,
            place=Place(place.begin, writer.at - place.begin),
            matched=matched,
            codes=stored_codes,
            ranges=ends,
            columns=columns,
            valid=valid,
            sizes=sizes[order] if packing.unpacked else None,
            rest=rest,
        )

    def _in_order(self, ranges: CodeRanges) -> tuple[npt.NDArray[np.integer[Any]], int]:
        """Return the rows in code order, followed by those that cannot match, and the number of rows that can."""
        possible = None if ranges.possible is None else np.flatnonzero(ranges.possible)
        low, high = ranges.low, ranges.high
        if possible is not None:
            low, high = low[possible], None if high is None else high[possible]
        order: npt.NDArray[np.integer[Any]] = self._sorter.order(low) if high is None else np.lexsort((high, low))
        if possible is None:
            return order, order.size
        assert ranges.possible is not None
        return np.concatenate([possible[order], np.flatnonzero(~ranges.possible)]), possible.size

    def enter(self, level: Level, enters_at: int, leaves_at: int) -> None:
        """Make a stored level part of the join from now on."""
        level.number, level.enters_at, level.leaves_at = self._next, enters_at, leaves_at
        self._next += 1
        self._ring.take(*level.place)
        self.levels.append(level)
        self._view = None

    def leave(self) -> None:
        """Remove the oldest level."""
        self._view = None
        self._ring.free()
        self.levels.popleft()

    def position(self, level: Level, code: int, *, behind: bool) -> int:
        """Return the number of tuples in a level whose codes are less than ``code``, or equal to it if ``behind``."""
        at, width, base = level.codes
        sought, narrow = (code >> self.packing.code_shift) - base, width == NARROW
        if narrow:
            sought = min(max(sought, -1), 1 << 8 * NARROW)  # the distance may not fit in 64 bits
        return int(position_of(self._ring.block, at, narrow, level.matchable, sought, behind))

    def keep(self, kept: Sequence[RowRanges]) -> None:
        """Drop all tuples but the rows ``kept`` of each level, and compact the levels so that free space is contiguous.

        Levels must have neither ranges nor unpacked columns. Tuple numbers from before are no longer valid.
        """
        for level, rows in zip(self.levels, kept, strict=True):
            self._keep(level, rows)
        begins = self._ring.shrink([level.place.nbytes for level in self.levels])
        for level, begin in zip(self.levels, begins, strict=True):
            level.move_to(begin)
        self._view = None

    def _keep(self, level: Level, kept: RowRanges) -> None:
        """Compact the kept tuples of a level, column by column in the order in which `store` wrote them."""
        writer = PackedWriter(self._ring.mover, level.place.begin)
        level.codes = writer.keep(level.codes, kept)
        own = [i for i in level.columns if i != self.packing.code_column]
        columns = {i: self.packing.columns[i].keep(writer, level.columns[i], kept) for i in own}
        if self.packing.code_column is not None:
            columns[self.packing.code_column] = [level.codes]
        level.columns = columns
        level.valid = {i: writer.keep(flags, kept) for i, flags in level.valid.items()}
        level.matched = writer.keep(Packed(level.matched, 1, 0), kept).at
        level.rows = level.matchable = sum(end - first for first, end in kept)
        level.place = Place(level.place.begin, writer.at - level.place.begin)

    @property
    def view(self) -> LevelView:
        """View of the current levels."""
        if self._view is None:
            self._view = LevelView(
                self._ring.block,
                tuple(self.levels),
                self.packing.schema,
                self.packing.columns,
                self.packing.code_shift,
            )
        return self._view

    def asked(self, level: Level) -> tuple[npt.NDArray[Any], int, int, Int64s | None]:
        """Return a level's ascending codes, their base and shift, and the ends of ranges, as `PageSweep.want` takes.

        A code is a stored one plus the base; its lowest ``shift`` bits are not stored. Ends are None for single codes.
        """

        def stored(at: int, width: int) -> npt.NDArray[Any]:
            end = at + width * level.matchable
            return self._ring.block[at:end].view(np.uint32 if width == NARROW else np.int64)

        at, width, base = level.codes
        return (
            stored(at, width),
            base,
            self.packing.code_shift,
            stored(level.ranges[0].at, 8) if level.ranges else None,
        )


def _flags(present: pa.Array) -> PackedValues:
    return PackedValues(present.to_numpy(zero_copy_only=False).view(np.int8), 1)
