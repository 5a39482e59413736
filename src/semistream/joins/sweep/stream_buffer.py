"""Stream tuples that wait in the order of their key codes, admission by admission, in as few bytes as can be."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.sweep.byte_ring import ByteRing, Place, aligned
from semistream.joins.sweep.kernels.pack import position_of
from semistream.joins.sweep.levels import NARROW, Level, LevelView
from semistream.joins.sweep.packing import (
    Packed,
    PackedBinary,
    PackedColumn,
    PackedStrings,
    PackedValues,
    PackedWriter,
    RowRanges,
    is_packable,
)
from semistream.kernels.array_types import Bytes, Int64s
from semistream.kernels.sort import CodeSorter
from semistream.keys import CodeRanges
from semistream.relation.format.row_sizes import fixed_row_bytes, is_binary, row_sizes

_OVERHEAD = 24  # bytes for each column of a level, at most, besides the tuples'


class StreamBuffer:
    """Stream tuples in levels of ascending codes, that leave level by level as they came, or before it (`keep`).

    A tuple costs its values, 8 bytes for its code (none if the code is a column of the stream) and a flag: no pointer,
    no hash table, no second copy; 16 bytes more if it asks for a range. Values of a level that lie close together are
    stored as distances from the least of them: a code mostly takes 4 bytes and a time 2 or 4, so that many more tuples
    than would fit as they are meet each page of R. Of hashes, which are compared for nothing but to find candidates,
    the lowest ``code_shift`` bits are left out: 4 bytes of 8 tell nearly all keys apart. Strings are stored without
    what all of a level begin with. Nested values stand in one Arrow batch per level. If ``memory`` is given, of
    ``nbytes`` in whole words, they lie there.
    """

    def __init__(
        self,
        schema: pa.Schema,
        nbytes: int,
        level_rows: int,
        code_column: int | None,
        *,
        single_codes: bool = True,
        code_shift: int = 0,
        memory: Bytes | None = None,
    ) -> None:
        self.levels: deque[Level] = deque()
        self._ring = ByteRing(nbytes, memory)
        self._single_codes = single_codes
        self._code_shift = code_shift
        self._schema = schema
        self._code_column = code_column
        self._integers = {i: PackedColumn(t) for i, t in enumerate(schema.types) if is_packable(t)}
        self._binary = {i: PackedBinary(t) for i, t in enumerate(schema.types) if is_binary(t)}
        self._columns: dict[int, PackedColumn | PackedBinary] = {**self._integers, **self._binary}
        self.unpacked = [i for i in range(len(schema)) if i not in self._columns]
        self._sorter = CodeSorter(level_rows)
        self._next = 0  # number of the next level
        self._row_bytes = self.most_bytes(
            1, schema, code_stored=code_column is not None, single_codes=single_codes, code_shift=code_shift
        )
        self._padding = 0
        self._view: LevelView | None = None

    @staticmethod
    def index_bytes(rows: int, *, code_stored: bool, single_codes: bool = True, code_shift: int = 0) -> int:
        """Bytes of ``rows`` besides the tuples themselves, if nothing can be made narrower.

        ``code_stored`` says whether the code is a column of the stream, ``single_codes`` whether each tuple asks for
        one code, and not for a range, and ``code_shift`` how many bits of it are left out.
        """
        code_bytes = 0 if code_stored else NARROW if code_shift >= 32 else 8
        return rows * (code_bytes + 1 + (0 if single_codes else 16))

    @classmethod
    def most_bytes(
        cls, rows: int, schema: pa.Schema, *, code_stored: bool, single_codes: bool = True, code_shift: int = 0
    ) -> int:
        """Bytes in which ``rows`` find room whatever their values are, but for those that cannot be packed."""
        values = fixed_row_bytes(schema) - fixed_row_bytes(cls.unpacked_columns(schema))
        index = cls.index_bytes(rows, code_stored=code_stored, single_codes=single_codes, code_shift=code_shift)
        return index + rows * values

    @staticmethod
    def unpacked_columns(schema: pa.Schema) -> pa.Schema:
        """Those that are not stored here, but stand in batches of their own."""
        return pa.schema([field for field in schema if not (is_packable(field.type) or is_binary(field.type))])

    @property
    def widest(self) -> int:
        """The widest tuple that there is always room for."""
        return int(self._ring.block.size) - _OVERHEAD * (len(self._schema) + 2)

    @property
    def capacity(self) -> int:
        """Tuples like those that came last for which there is room in all."""
        return max(self._ring.block.size // self._row_bytes, 1)

    def room(self, rows: int) -> Place | None:
        """Where a level of ``rows`` can go, if they are like those before; None if others must leave first."""
        wanted = rows * self._row_bytes + self._padding
        place = self._ring.room(wanted)
        return place if place.nbytes >= wanted or not self.levels else None

    def stored_row_bytes(self, batch: pa.RecordBatch, ranges: CodeRanges) -> int:
        """Bytes that rows take in a level, if they are stored as one: no more than there is room for in all."""
        level = self.store(self._ring.room(self._ring.block.size), batch, row_sizes(batch), ranges)
        return self._row_bytes if level is not None else fixed_row_bytes(self._schema)

    def store(self, place: Place, batch: pa.RecordBatch, sizes: Int64s, ranges: CodeRanges) -> Level | None:
        """Write as many tuples, from the first on, as ``place`` has room for; None if there is not enough for any.

        Any thread may do it, one at a time. If nothing else is stored there is always enough for some.
        """
        own = {i: column.integers(batch.column(i)) for i, column in self._integers.items() if i != self._code_column}
        values = {i: [PackedValues.of(part) for part in parts] for i, parts in own.items()}
        codes = self._codes(ranges)
        nulls = {i: batch.column(i).is_valid() for i in self._columns if batch.column(i).null_count}
        widths = [codes.width, 1, *(part.width for parts in values.values() for part in parts)]
        widths += [1] * len(nulls) + ([] if self._single_codes else [8, 8])
        strings = [PackedStrings.of(batch.column(i)) for i in self._binary]
        self._padding = aligned(1) * (len(widths) + 2 * len(strings)) + sum(some.prefix for some in strings)
        rows = self._fitting(batch.num_rows, sum(widths), strings, place.nbytes - self._padding)
        if rows == 0:
            return None
        order, matchable = self._in_order(ranges.first(rows))
        writer = PackedWriter(self._ring.mover, place.begin)
        stored_codes = writer.put(codes, order)
        columns = {i: [writer.put(part, order) for part in parts] for i, parts in values.items()}
        columns |= {i: some.put(writer, order) for i, some in zip(self._binary, strings, strict=True)}
        if self._code_column is not None:
            columns[self._code_column] = [stored_codes]
        flags = {i: PackedValues(valid.to_numpy(zero_copy_only=False).view(np.int8), 1) for i, valid in nulls.items()}
        valid = {i: writer.put(values, order) for i, values in flags.items()}
        ends: tuple[Packed, ...] = ()
        if ranges.high is not None:
            high = ranges.high[order[:matchable]]
            every = np.arange(matchable)
            ends = tuple(writer.put(PackedValues(v, 8), every) for v in (high, np.maximum.accumulate(high)))
        matched = writer.clear(rows)
        rest = batch.select(self.unpacked).take(pa.array(order)) if self.unpacked else None
        return Level(
            rows=rows,
            matchable=matchable,
            place=Place(place.begin, writer.at - place.begin),
            matched=matched,
            codes=stored_codes,
            ranges=ends,
            columns=columns,
            valid=valid,
            sizes=sizes[order] if self.unpacked else None,
            rest=rest,
        )

    def _fitting(self, rows: int, row_bytes: int, strings: Sequence[PackedStrings], nbytes: int) -> int:
        """How many tuples, from the first on, have room if each takes ``row_bytes`` and the bytes of its strings."""
        row_bytes += sum(some.row_bytes for some in strings)
        varying = [some for some in strings if some.varying]
        if not varying:
            self._row_bytes = row_bytes
            return max(min(rows, nbytes // row_bytes), 0)
        ends = np.arange(1, rows + 1) * row_bytes
        for some in varying:
            ends += some.own_ends
        self._row_bytes = -(-int(ends[-1]) // rows)
        return int(np.searchsorted(ends, nbytes, "right"))

    def _codes(self, ranges: CodeRanges) -> PackedValues:
        """The codes that tuples ask for, or begin to."""
        if not self._single_codes:
            return PackedValues(ranges.low, 8)
        codes = ranges.low >> self._code_shift if self._code_shift else ranges.low
        possible = codes if ranges.possible is None else codes[ranges.possible]
        return PackedValues.of(possible, widths=(NARROW, 8))._replace(values=codes)

    def _in_order(self, ranges: CodeRanges) -> tuple[npt.NDArray[np.integer[Any]], int]:
        """Rows in the order of their codes, then those that can match nothing; and how many can."""
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
        """Let a level that was stored be joined from now on."""
        level.number, level.enters_at, level.leaves_at = self._next, enters_at, leaves_at
        self._next += 1
        self._ring.take(*level.place)
        self.levels.append(level)
        self._view = None

    def leave(self) -> None:
        """Let the oldest level go."""
        self._view = None
        self._ring.free()
        self.levels.popleft()

    def position(self, level: Level, code: int, *, behind: bool) -> int:
        """How many tuples of a level ask for less than a code, or for less or just it if that is to be ``behind``."""
        at, width, base = level.codes
        sought, narrow = (code >> self._code_shift) - base, width == NARROW
        if narrow:
            sought = min(max(sought, -1), 1 << 8 * NARROW)  # it may be further from the base than 64 bits can tell
        return int(position_of(self._ring.block, at, narrow, level.matchable, sought, behind))

    def keep(self, kept: Sequence[RowRanges]) -> None:
        """Let all tuples go but some of each level, and have all that is free in one place.

        Levels must not have ranges or columns that cannot be packed. All that was named by number before has new ones.
        """
        for level, rows in zip(self.levels, kept, strict=True):
            self._keep(level, rows)
        begins = self._ring.shrink([level.place.nbytes for level in self.levels])
        for level, begin in zip(self.levels, begins, strict=True):
            level.move_to(begin)
        self._view = None

    def _keep(self, level: Level, kept: RowRanges) -> None:
        """Move some tuples of a level together, in the order in which `store` has written their columns."""
        writer = PackedWriter(self._ring.mover, level.place.begin)
        level.codes = writer.keep(level.codes, kept)
        own = [i for i in level.columns if i != self._code_column]
        columns = {i: self._columns[i].keep(writer, level.columns[i], kept) for i in own}
        if self._code_column is not None:
            columns[self._code_column] = [level.codes]
        level.columns = columns
        level.valid = {i: writer.keep(flags, kept) for i, flags in level.valid.items()}
        level.matched = writer.keep(Packed(level.matched, 1, 0), kept).at
        level.rows = level.matchable = sum(end - first for first, end in kept)
        level.place = Place(level.place.begin, writer.at - level.place.begin)

    @property
    def view(self) -> LevelView:
        """The levels as they are now."""
        if self._view is None:
            self._view = LevelView(self._ring.block, tuple(self.levels), self._schema, self._columns, self._code_shift)
        return self._view

    def asked(self, level: Level) -> tuple[npt.NDArray[Any], int, int, Int64s | None]:
        """What a level asks for, ascending: codes, the base that is to be added to them, how many of their bits are
        left out, and where ranges end.
        """

        def stored(at: int, width: int) -> npt.NDArray[Any]:
            end = at + width * level.matchable
            return self._ring.block[at:end].view(np.uint32 if width == NARROW else np.int64)

        at, width, base = level.codes
        return stored(at, width), base, self._code_shift, stored(level.ranges[0].at, 8) if level.ranges else None
