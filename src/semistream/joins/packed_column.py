"""PackedColumn: a column of fixed width as integers that can be stored as distances from the least of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.byte_ring import ByteMover, aligned
from semistream.kernels.packed import pack_rows, take_packed, value_span
from semistream.kernels.types import Bytes, Int64s
from semistream.relation.arrow_memory import new_array, packed_bits

_INTEGERS: dict[int, type[np.signedinteger[Any]]] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_STORED: dict[int, type[np.integer[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.int64}
_LONG = 16  # bytes of a value that is stored as two integers

RowRanges = Sequence[tuple[int, int]]
"""Some rows of a level: from the first of each range to before the last, in ascending order."""


class Packed(NamedTuple):
    """Where integers stand in a block of bytes, how wide they are there, and what is to be added to them."""

    at: int
    width: int
    base: int


class PackedLevels(NamedTuple):
    """`Packed` of each level, as arrays."""

    at: Int64s
    width: Int64s
    base: Int64s

    @classmethod
    def of(cls, levels: list[Packed]) -> PackedLevels:
        """One entry for each level."""
        return cls(*np.array(levels, np.int64).reshape(-1, 3).T.copy())


def is_packable(type_: pa.DataType) -> bool:
    """Whether values of a type have a width that integers can be made of."""
    if isinstance(type_, pa.BaseExtensionType) or pa.types.is_nested(type_) or pa.types.is_dictionary(type_):
        return False
    return pa.types.is_boolean(type_) or (
        not pa.types.is_null(type_) and type_.num_buffers == 2 and type_.bit_width // 8 in (*_INTEGERS, _LONG)
    )


class PackedColumn:
    """How values of a type are taken apart into integers and put together again.

    Any value of 1 to 8 bytes is one integer, one of 16 bytes two. Times, numbers that count on, codes of few values and
    the upper halves of decimals lie close together in a level, and take a fraction of their bytes.
    """

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._bits = pa.types.is_boolean(type_)
        width = 1 if self._bits else type_.bit_width // 8
        self.parts = 2 if width == _LONG else 1
        self._integer = _INTEGERS[min(width, 8)]

    def keep(self, writer: PackedWriter, parts: Sequence[Packed], kept: RowRanges) -> list[Packed]:
        """Store some rows of a level once more, further in front."""
        return [writer.keep(part, kept) for part in parts]

    def integers(self, column: pa.Array) -> list[npt.NDArray[Any]]:
        """The values of a column, part by part. Where there is none, it is any number."""
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
        """The values of some tuples; ``validity`` says which have one, if not all do."""
        values = new_array(self.parts * numbers.size, self._integer)
        for part, packed in enumerate(levels):
            take_packed(block, first, packed.at, packed.width, packed.base, numbers, values[part :: self.parts])
        data = packed_bits(values.view(np.bool_)) if self._bits else pa.py_buffer(values)
        return pa.Array.from_buffers(self._type, numbers.size, [validity, data])


class PackedValues(NamedTuple):
    """Integers that are to be stored, how wide that makes them, and the base."""

    values: npt.NDArray[Any]
    width: int
    base: int = 0

    @classmethod
    def of(cls, values: npt.NDArray[Any], *, widths: tuple[int, ...] = (0, 1, 2, 4, 8)) -> PackedValues:
        """As narrow as they can be, of some widths of which the last is 8."""
        least, span = value_span(values)
        width = next(width for width in widths if width == 8 or int(span) < 1 << (8 * width))
        return cls(values, width, int(least) if width < 8 else 0)


class PackedWriter:
    """Stores things one behind the other in a block of bytes, from ``at`` on."""

    def __init__(self, mover: ByteMover, at: int) -> None:
        self.block = mover.block
        self.at = at
        self._mover = mover

    def reserve(self, nbytes: int) -> tuple[int, int]:
        """Room for some bytes: where it begins and ends."""
        begin, end = self.at, self.at + nbytes
        self.at = aligned(end)
        return begin, end

    def put(self, values: PackedValues, order: npt.NDArray[Any]) -> Packed:
        """Store the rows ``order`` of some integers."""
        begin, end = self.reserve(values.width * order.size)
        if values.width:
            pack_rows(values.values, order, values.base, self.block[begin:end].view(_STORED[values.width]))
        return Packed(begin, values.width, values.base)

    def keep(self, stored: Packed, kept: RowRanges) -> Packed:
        """Store some rows once more that stand at ``at`` or behind it."""
        begin, _ = self.reserve(stored.width * sum(end - first for first, end in kept))
        self.move(stored.at, [(first * stored.width, end * stored.width) for first, end in kept], begin)
        return Packed(begin, stored.width, stored.base)

    def move(self, at: int, ranges: RowRanges, to: int) -> None:
        """Move ranges of bytes, counted from ``at``, to where they stand one behind the other, not behind ``at``."""
        for first, end in ranges:
            self._mover.move(at + first, end - first, to)
            to += end - first

    def clear(self, nbytes: int) -> int:
        """Store zeros; gives where."""
        begin, end = self.reserve(nbytes)
        self.block[begin:end] = 0
        return begin
