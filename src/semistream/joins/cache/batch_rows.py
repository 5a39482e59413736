"""BatchRows: a batch of stream tuples in the form an emitter takes, addressed by row number."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.sweep.packing import string_offsets
from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.byte_strings import same_strings
from semistream.relation import PageRun
from semistream.relation.format.page_layout import ColumnLayout
from semistream.relation.format.row_sizes import fixed_row_bytes, is_binary, is_regular, row_sizes


class BatchRows:
    """The tuples of a batch, addressed by row number. Row sizes derived from the schema are computed once."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def take(self, positions: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """Return copies of some tuples, one array per column."""
        batch = self.batch if columns is None else self.batch.select(columns)
        return list(batch.take(pa.array(positions)).columns)

    def sizes(self, begin: int, rows: int) -> Int64s:
        """Return the bytes of each of up to ``rows`` tuples from ``begin`` on; equal sizes take no memory."""
        rows = min(rows, self.batch.num_rows - begin)
        if self._offsets is None:
            return row_sizes(self.batch.slice(begin, rows))
        if not self._offsets:
            return np.broadcast_to(self._fixed, rows)
        sizes = np.full(rows, self._fixed)
        for offsets in self._offsets.values():
            sizes += np.diff(offsets[begin : begin + rows + 1])
        return sizes

    def row_bytes(self, positions: Int64s) -> Int64s:
        """Return the bytes of some tuples. With nested columns, it also measures all tuples in between."""
        if self._offsets is None and positions.size:
            first = int(positions.min())
            near: Int64s = self.sizes(first, int(positions.max()) + 1 - first)[positions - first]
            return near
        sizes = np.full(positions.size, self._fixed)
        for offsets in (self._offsets or {}).values():
            sizes += offsets[positions + 1]
            sizes -= offsets[positions]
        return sizes

    @cached_property
    def _fixed(self) -> np.int64:
        return np.int64(fixed_row_bytes(self.batch.schema))

    @cached_property
    def _offsets(self) -> dict[int, npt.NDArray[Any]] | None:
        """Value offsets of each string column; None if other columns vary in size too."""
        strings = [i for i, type_ in enumerate(self.batch.schema.types) if is_binary(type_)]
        others = [field for i, field in enumerate(self.batch.schema) if i not in strings]
        if not is_regular(pa.schema(others)):
            return None
        columns = {i: self.batch.column(i) for i in strings}
        return {i: string_offsets(column) for i, column in columns.items()}

    def same_bytes(
        self, i: int, positions: Int64s, run: PageRun, column: ColumnLayout, page: Int32s, row: Int32s
    ) -> Bools | None:
        """Return a flag per pair of a tuple and a row of a run: True if their strings are equal; None if all are."""
        own = self.batch.column(i)
        own_offsets = self._offsets[i] if self._offsets else string_offsets(own)
        offsets = run.view(np.int32 if column.width == 4 else np.int64)
        starts = run.positions[:, column.first_buffer + 1] // column.width
        data_starts = run.positions[:, column.first_buffer + 2]
        out = np.empty(positions.size, np.bool_)
        pairs = positions, run.buffer, offsets, starts, data_starts, page, row, out
        return None if same_strings(_bytes(own), own_offsets, *pairs) else out


def _bytes(strings: pa.Array) -> Bytes:
    data = strings.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
