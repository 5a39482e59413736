"""Columns of waiting stream tuples, packed into a block of bytes and unpacked again.

`PackedColumn` stores fixed-width values as integers relative to the minimum of a level. `PackedBinary` stores strings
or bytes as offsets and contiguous data, without the prefix common to a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.sweep.byte_ring import ByteMover, aligned
from semistream.joins.sweep.kernels.pack import (
    move_offsets,
    pack_rows,
    pack_strings,
    same_bytes,
    string_shape,
    take_bytes,
    take_lengths,
    take_packed,
    value_span,
)
from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.relation import PageRun
from semistream.relation.format.page_layout import ColumnLayout
from semistream.relation.read.row_gatherer import new_array, packed_bits

_INTEGERS: dict[int, type[np.signedinteger[Any]]] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_STORED: dict[int, type[np.integer[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.int64}
_LONG = 16  # bytes of a value stored as two integers

RowRanges = Sequence[tuple[int, int]]
"""Rows of a level as ascending half-open ranges ``(first, end)``."""


class Packed(NamedTuple):
    """Integers stored in a block: position, width in bytes, and the base to add to each."""

    at: int
    width: int
    base: int


class PackedLevels(NamedTuple):
    """The `Packed` of all levels, as arrays."""

    at: Int64s
    width: Int64s
    base: Int64s

    @classmethod
    def of(cls, levels: list[Packed]) -> PackedLevels:
        """Build the arrays, with one entry per level."""
        return cls(*np.array(levels, np.int64).reshape(-1, 3).T.copy())


def is_packable(type_: pa.DataType) -> bool:
    """Return True if values of a type have a fixed width of 1, 2, 4, 8 or 16 bytes, or are booleans."""
    if isinstance(type_, pa.BaseExtensionType) or pa.types.is_nested(type_) or pa.types.is_dictionary(type_):
        return False
    return pa.types.is_boolean(type_) or (
        not pa.types.is_null(type_) and type_.num_buffers == 2 and type_.bit_width // 8 in (*_INTEGERS, _LONG)
    )


class PackedColumn:
    """Converter between the values of a fixed-width type and integers.

    A value of 1 to 8 bytes is one integer, a value of 16 bytes two. Times, sequence numbers, codes with few distinct
    values and the upper halves of decimals lie close together within a level, so they take a fraction of their bytes.
    """

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._bits = pa.types.is_boolean(type_)
        width = 1 if self._bits else type_.bit_width // 8
        self.parts = 2 if width == _LONG else 1
        self._integer = _INTEGERS[min(width, 8)]

    def keep(self, writer: PackedWriter, parts: Sequence[Packed], kept: RowRanges) -> list[Packed]:
        """Store the kept rows of a level again, at the position of the writer."""
        return [writer.keep(part, kept) for part in parts]

    def integers(self, column: pa.Array) -> list[npt.NDArray[Any]]:
        """Return the values of a column as integers, part by part; a null has an arbitrary value."""
        if self._bits:
            return [column.fill_null(False).to_numpy(zero_copy_only=False).view(np.int8)]
        width = self.parts * np.dtype(self._integer).itemsize
        values = np.frombuffer(column.buffers()[1], self._integer, self.parts * len(column), column.offset * width)
        return [values[part :: self.parts] for part in range(self.parts)]

    def take(
        self,
        block: Bytes,
        first: int,
        levels: list[PackedLevels],
        numbers: Int64s,
        validity: pa.Buffer | None,
    ) -> pa.Array:
        """Return the values of some tuples; ``validity`` is their bitmap, None if there are no nulls."""
        values = new_array(self.parts * numbers.size, self._integer)
        for part, packed in enumerate(levels):
            take_packed(block, first, packed.at, packed.width, packed.base, numbers, values[part :: self.parts])
        data = packed_bits(values.view(np.bool_)) if self._bits else pa.py_buffer(values)
        return pa.Array.from_buffers(self._type, numbers.size, [validity, data])


class PackedValues(NamedTuple):
    """Integers to store, with the width in bytes and the base to store them with."""

    values: npt.NDArray[Any]
    width: int
    base: int = 0

    @classmethod
    def of(cls, values: npt.NDArray[Any], *, widths: tuple[int, ...] = (0, 1, 2, 4, 8)) -> PackedValues:
        """Choose the narrowest of ``widths`` that holds the values; the last width must be 8."""
        least, span = value_span(values)
        width = next(width for width in widths if width == 8 or int(span) < 1 << (8 * width))
        return cls(values, width, int(least) if width < 8 else 0)


class PackedWriter:
    """Writes values one after the other into a block of bytes, starting at ``at``."""

    def __init__(self, mover: ByteMover, at: int) -> None:
        self.block = mover.block
        self.at = at
        self._mover = mover

    def reserve(self, nbytes: int) -> tuple[int, int]:
        """Reserve ``nbytes`` and return where they begin and end."""
        begin, end = self.at, self.at + nbytes
        self.at = aligned(end)
        return begin, end

    def put(self, values: PackedValues, order: npt.NDArray[Any]) -> Packed:
        """Store integers in the given order of rows."""
        begin, end = self.reserve(values.width * order.size)
        if values.width:
            pack_rows(values.values, order, values.base, self.block[begin:end].view(_STORED[values.width]))
        return Packed(begin, values.width, values.base)

    def keep(self, stored: Packed, kept: RowRanges) -> Packed:
        """Store the kept rows of integers again, which lie at or after the writer's position."""
        begin, _ = self.reserve(stored.width * sum(end - first for first, end in kept))
        self.move(stored.at, [(first * stored.width, end * stored.width) for first, end in kept], begin)
        return Packed(begin, stored.width, stored.base)

    def move(self, at: int, ranges: RowRanges, to: int) -> None:
        """Move byte ranges, given relative to ``at``, one after the other to ``to``, which must not be after ``at``."""
        for first, end in ranges:
            self._mover.move(at + first, end - first, to)
            to += end - first

    def clear(self, nbytes: int) -> int:
        """Store ``nbytes`` zeros and return their position."""
        begin, end = self.reserve(nbytes)
        self.block[begin:end] = 0
        return begin


_OFFSET_BYTES = 4


class PackedStrings:
    """The strings or bytes of a column to store, without their common prefix.

    If all have the same length, offsets are not stored either.
    """

    def __init__(self, offsets: npt.NDArray[Any], data: Bytes, prefix: int, own_bytes: int) -> None:
        self._offsets = offsets
        self._data = data
        self.prefix = prefix
        self._own_bytes = own_bytes

    @classmethod
    def of(cls, column: pa.Array) -> PackedStrings:
        """Measure the values of a column."""
        buffers = column.buffers()
        data = np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
        offsets = string_offsets(column)
        return cls(offsets, data, *string_shape(offsets, data))

    @property
    def varying(self) -> bool:
        """True if the values differ in length."""
        return self._own_bytes < 0

    @property
    def row_bytes(self) -> int:
        """Fixed bytes of each row: its offset, or its bytes after the prefix if all lengths are equal."""
        return _OFFSET_BYTES if self.varying else self._own_bytes

    @property
    def own_ends(self) -> Int64s:
        """End of each value, without its prefix, if stored one after the other."""
        ends: Int64s = self._offsets[1:] - np.int64(self._offsets[0])
        return ends - self.prefix * np.arange(1, ends.size + 1)

    def put(self, writer: PackedWriter, order: npt.NDArray[Any]) -> list[Packed]:
        """Store the rows ``order``, which are a permutation of the first rows."""
        starts, ends = writer.reserve(_OFFSET_BYTES * (order.size + 1) if self.varying else 0)
        own = int(self.own_ends[order.size - 1]) if self.varying else self._own_bytes * order.size
        begin, end = writer.reserve(self.prefix + own)
        out_offsets = writer.block[starts:ends].view(np.uint32)
        pack_strings(self._offsets, self._data, order, self.prefix, out_offsets, writer.block[begin:end])
        return [
            Packed(starts, _OFFSET_BYTES, 0) if self.varying else Packed(starts, 0, self._own_bytes),
            Packed(begin, self.prefix, 0),
        ]


def string_offsets(column: pa.Array) -> npt.NDArray[Any]:
    """Return the offsets of a column: the start of each value, and the end of the last."""
    offset_type = _offset_type(column.type)
    return np.frombuffer(column.buffers()[1], offset_type, len(column) + 1, column.offset * offset_type().itemsize)


def _offset_type(type_: pa.DataType) -> type[np.signedinteger[Any]]:
    large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    return np.int64 if large else np.int32


class PackedBinary:
    """Reader of the strings or bytes that `PackedStrings` stores in levels."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._offset_type = _offset_type(type_)

    def keep(self, writer: PackedWriter, parts: Sequence[Packed], kept: RowRanges) -> list[Packed]:
        """Store the kept rows of a level again, at the position of the writer."""
        (at, width, base), (data_at, prefix, _) = parts
        if width == 0:
            starts, _ = writer.reserve(0)
            ranges = [(first * base, end * base) for first, end in kept]
        else:
            starts, ranges = self._keep_offsets(writer, at, kept)
        begin, _ = writer.reserve(prefix + sum(end - first for first, end in ranges))
        writer.move(data_at, [(0, prefix), *((prefix + first, prefix + end) for first, end in ranges)], begin)
        return [Packed(starts, width, base), Packed(begin, prefix, 0)]

    @staticmethod
    def _keep_offsets(writer: PackedWriter, at: int, kept: RowRanges) -> tuple[int, list[tuple[int, int]]]:
        """Store the offsets of the kept rows again; return their new position and the byte ranges of these rows."""
        rows = sum(end - first for first, end in kept)
        starts, ends = writer.reserve(_OFFSET_BYTES * (rows + 1))
        offsets = writer.block[at:].view(np.uint32)
        ranges = [(int(offsets[first]), int(offsets[end])) for first, end in kept]
        to, before = starts, 0
        for (first, end), (begin, stop) in zip(kept, ranges, strict=True):
            move_offsets(writer.block, at + _OFFSET_BYTES * first, end - first, before - begin, to)
            to += _OFFSET_BYTES * (end - first)
            before += stop - begin
        writer.block[ends - _OFFSET_BYTES : ends].view(np.uint32)[0] = before
        return starts, ranges

    def lengths(self, block: Bytes, first: int, levels: list[PackedLevels], numbers: Int64s) -> Int64s:
        """Return the bytes of some tuples' values; if all are equal, a broadcast number, which takes no memory."""
        whole = levels[0].base + levels[1].width
        if not levels[0].width.any() and whole.size and (whole == whole[0]).all():
            return np.broadcast_to(whole[0], numbers.size)
        ends = np.empty(numbers.size + 1, np.int64)
        take_lengths(block, first, *levels[0], levels[1].width, numbers, ends)
        return np.diff(ends)

    def same(
        self,
        block: Bytes,
        first: int,
        levels: list[PackedLevels],
        numbers: Int64s,
        run: PageRun,
        column: ColumnLayout,
        page: Int32s,
        row: Int32s,
    ) -> Bools | None:
        """Compare the values of tuples with a column of R, pair by pair; return None if all pairs are equal."""
        offsets = run.view(np.int32 if column.width == 4 else np.int64)
        starts = run.positions[:, column.first_buffer + 1] // column.width
        data_starts = run.positions[:, column.first_buffer + 2]
        out = np.empty(numbers.size, np.bool_)
        stored = block, first, *levels[0], levels[1].at, levels[1].width, numbers
        return None if same_bytes(*stored, run.buffer, offsets, starts, data_starts, page, row, out) else out

    def take(
        self,
        block: Bytes,
        first: int,
        levels: list[PackedLevels],
        numbers: Int64s,
        validity: pa.Buffer | None,
    ) -> pa.Array:
        """Return the values of some tuples, with ``validity`` as their bitmap."""
        offsets = new_array(numbers.size + 1, self._offset_type)
        total = take_lengths(block, first, *levels[0], levels[1].width, numbers, offsets)
        data = new_array(int(total), np.uint8)
        take_bytes(block, first, *levels[0], levels[1].at, levels[1].width, numbers, data)
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._type, numbers.size, buffers)
