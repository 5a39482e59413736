"""PackedBinary: a column of strings or bytes, stored as offsets and bytes one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.packed_column import Packed, PackedLevels, PackedWriter
from semistream.kernels.packed import pack_binary, same_bytes, take_bytes, take_lengths
from semistream.kernels.types import Bools, Bytes, Int32s, Int64s
from semistream.relation import PageRun
from semistream.relation.arrow_memory import new_array
from semistream.relation.page_layout import ColumnLayout

OFFSET_BYTES = 4


class PackedBinary:
    """How strings or bytes are stored in a level, and copied out of levels again."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
        self._offset_type: type[np.signedinteger[Any]] = np.int64 if large else np.int32

    def offsets(self, column: pa.Array) -> npt.NDArray[Any]:
        """Where each value of a column starts, and the last one ends."""
        width = np.dtype(self._offset_type).itemsize
        return np.frombuffer(column.buffers()[1], self._offset_type, len(column) + 1, column.offset * width)

    def put(self, writer: PackedWriter, column: pa.Array, order: npt.NDArray[Any]) -> list[Packed]:
        """Store the rows ``order``, which are the first ones of the column in any order."""
        offsets, data = self.offsets(column), column.buffers()[2]
        values = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        starts, ends = writer.reserve(OFFSET_BYTES * (order.size + 1))
        begin, end = writer.reserve(int(offsets[order.size] - offsets[0]))
        pack_binary(offsets, values, order, writer.block[starts:ends].view(np.uint32), writer.block[begin:end])
        return [Packed(starts, OFFSET_BYTES, 0), Packed(begin, 1, 0)]

    def lengths(self, block: Bytes, first: int, levels: list[PackedLevels], numbers: Int64s) -> Int64s:
        """Bytes of some tuples' values."""
        ends = np.empty(numbers.size + 1, np.int64)
        take_lengths(block, first, levels[0].at, numbers, ends)
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
        """For each pair of a tuple and a row of a run, whether they have the same bytes; None if all do."""
        offsets = run.view(np.int32 if column.width == 4 else np.int64)
        starts = run.positions[:, column.first_buffer + 1] // column.width
        data_starts = run.positions[:, column.first_buffer + 2]
        out = np.empty(numbers.size, np.bool_)
        stored = block, first, levels[0].at, levels[1].at, numbers
        return None if same_bytes(*stored, run.buffer, offsets, starts, data_starts, page, row, out) else out

    def take(
        self,
        block: Bytes,
        first: int,
        levels: list[PackedLevels],
        numbers: Int64s,
        validity: pa.Buffer | None,
    ) -> pa.Array:
        """The values of some tuples."""
        offsets = new_array(numbers.size + 1, self._offset_type)
        total = take_lengths(block, first, levels[0].at, numbers, offsets)
        data = new_array(int(total), np.uint8)
        take_bytes(block, first, levels[0].at, levels[1].at, numbers, offsets, data)
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._type, numbers.size, buffers)
