"""RowGatherer: collects chosen rows of R, run after run, as Arrow arrays.

Result arrays come from Arrow's memory pool (see `new_array`), which reuses the memory of earlier results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.relation.format.page_layout import ColumnLayout
from semistream.relation.format.row_sizes import value_bytes
from semistream.relation.read.kernels.gather import (
    gather_bits,
    gather_bytes,
    gather_columns,
    gather_lengths,
    gather_wide,
)

if TYPE_CHECKING:
    from semistream.relation.read.page_run import PageRun


def new_array(rows: int, value_type: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate an uninitialised array of ``rows`` values in Arrow's memory pool.

    Results are created and dropped by the megabyte. Getting fresh memory pages from the system for each would cost more
    than filling them; Arrow's pool reuses the same memory.
    """
    dtype = np.dtype(value_type)
    return np.frombuffer(pa.allocate_buffer(rows * dtype.itemsize), dtype) if rows else np.empty(0, dtype)


def packed_bits(flags: npt.NDArray[Any]) -> pa.Buffer:
    """Pack flags of one byte each into an Arrow bitmap, for validity or booleans."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


_NO_BYTES = pa.py_buffer(b"")
_VALUE_TYPES: dict[int, type[np.generic]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class RowGatherer:
    """Collector of rows of ``columns`` from runs, until `finish`; holds at most ``capacity`` rows at a time.

    One kernel copies all columns of the same width together, into one block of memory.
    """

    def __init__(self, columns: Sequence[ColumnLayout], capacity: int) -> None:
        self._columns = columns
        self._capacity = capacity
        self._places: dict[int, int] = {}  # position of a column of 1, 2, 4 or 8 bytes among those of its width
        groups: dict[int, list[int]] = {}
        for i, column in enumerate(columns):
            if column.kind == "fixed" and column.width in _VALUE_TYPES:
                group = groups.setdefault(column.width, [])
                self._places[i] = len(group)
                group.append(column.first_buffer + 1)
        self._starts = {width: np.array(group) for width, group in groups.items()}
        self._others = [i for i in range(len(columns)) if i not in self._places]
        self._validity = [(i, c.first_buffer) for i, c in enumerate(columns) if c.kind in ("fixed", "bits")]
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self._blocks: dict[int, pa.Buffer] = {}  # one per width, with the values column after column
        self._values: dict[int, npt.NDArray[Any]] = {}  # views of the blocks, by column and row
        self._bytes: dict[int, npt.NDArray[Any]] = {}  # by column: booleans, and values of other widths
        self._valid: dict[int, Bools] = {}
        self._pieces: dict[int, list[pa.Array]] = {}  # strings and nested values, one piece per run

    def append(self, run: PageRun, page: Int32s, row: Int32s) -> None:
        """Append copies of rows of a run."""
        begin, end = self.rows, self.rows + page.size
        for width, buffers in self._starts.items():
            values = self._values.get(width)
            if values is None:
                block = self._blocks[width] = pa.allocate_buffer(buffers.size * self._capacity * width)
                values = np.frombuffer(block, _VALUE_TYPES[width]).reshape(buffers.size, self._capacity)
                self._values[width] = values
            gather_columns(run.view(_VALUE_TYPES[width]), run.positions, buffers, page, row, values[:, begin:end])
        for i in self._others:
            self._append_other(i, run, page, row)
        filled = run.filled
        for i, buffer in self._validity:
            if filled[buffer]:
                valid = self._valid.setdefault(i, np.ones(self._capacity, np.bool_))
                gather_bits(run.buffer, run.positions[:, buffer], page, row, valid[begin:end])
        self.rows = end

    def _append_other(self, i: int, run: PageRun, page: Int32s, row: Int32s) -> None:
        column = self._columns[i]
        if column.kind == "binary":
            self._pieces.setdefault(i, []).append(_gather_binary(run, column, page, row))
        elif column.kind == "arrow":
            self._pieces.setdefault(i, []).append(_gather_by_arrow(run, column, page, row))
        else:
            self._append_bytes(i, run, page, row)

    def _append_bytes(self, i: int, run: PageRun, page: Int32s, row: Int32s) -> None:
        column = self._columns[i]
        starts = run.positions[:, column.first_buffer + 1]
        if column.kind == "bits":
            bits = self._bytes_of(i, self._capacity, np.bool_)
            gather_bits(run.buffer, starts, page, row, bits[self.rows : self.rows + page.size])
        else:
            wide = self._bytes_of(i, self._capacity * column.width, np.uint8)
            gather_wide(run.buffer, column.width, starts, page, row, wide[self.rows * column.width :])

    def _bytes_of(self, i: int, values: int, value_type: type[np.generic]) -> npt.NDArray[Any]:
        if i not in self._bytes:
            self._bytes[i] = new_array(values, value_type)
        return self._bytes[i]

    def finish(self) -> list[pa.Array]:
        """Return the collected rows, one array per column, and empty the gatherer."""
        arrays = [self._array(i) for i in range(len(self._columns))]
        self._clear()
        return arrays

    def _array(self, i: int) -> pa.Array:
        column = self._columns[i]
        if column.kind in ("binary", "arrow"):
            return pa.concat_arrays(self._pieces[i]) if self._pieces else pa.nulls(0, column.type)
        if i in self._places:
            block, width = self._blocks.get(column.width, _NO_BYTES), column.width
            values = block.slice(self._places[i] * self._capacity * width, self.rows * width)
        elif column.kind == "bits":
            values = packed_bits(self._bytes.get(i, np.empty(0, np.bool_))[: self.rows])
        else:
            values = pa.py_buffer(self._bytes.get(i, np.empty(0, np.uint8))[: self.rows * column.width])
        valid = self._valid.get(i)
        validity = None if valid is None else packed_bits(valid[: self.rows])
        return pa.Array.from_buffers(column.type, self.rows, [validity, values])


def _gather_binary(run: PageRun, column: ColumnLayout, page: Int32s, row: Int32s) -> pa.Array:
    offset_type = np.int32 if column.width == 4 else np.int64
    offsets = run.view(offset_type)
    starts = run.positions[:, column.first_buffer + 1] // column.width
    out_offsets = new_array(page.size + 1, offset_type)
    out = new_array(int(gather_lengths(offsets, starts, page, row, out_offsets)), np.uint8)
    data_starts = run.positions[:, column.first_buffer + 2]
    gather_bytes(run.buffer, offsets, starts, data_starts, page, row, out_offsets, out)
    validity = None
    if run.filled[column.first_buffer]:
        valid = np.empty(page.size, np.bool_)
        gather_bits(run.buffer, run.positions[:, column.first_buffer], page, row, valid)
        validity = packed_bits(valid)
    return pa.Array.from_buffers(column.type, page.size, [validity, pa.py_buffer(out_offsets), pa.py_buffer(out)])


def _gather_by_arrow(run: PageRun, column: ColumnLayout, page: Int32s, row: Int32s) -> pa.Array:
    """Gather nested values, with one take per page."""
    if page.size == 0:
        return pa.nulls(0, column.type)
    if np.any(page[1:] < page[:-1]):
        order = np.argsort(page, kind="stable")
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return _gather_by_arrow(run, column, page[order], row[order]).take(pa.array(back))
    begins = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(page)) + 1])
    ends = np.append(begins[1:], page.size)
    return pa.concat_arrays(
        [
            run.batch(int(page[begin]), [column.name]).column(0).take(pa.array(row[begin:end]))
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
    )


def row_bytes(run: PageRun, columns: Sequence[ColumnLayout], page: Int32s, row: Int32s) -> Int64s:
    """Return the bytes of each of the chosen rows once gathered, rounded up."""
    sizes = np.full(page.size, sum(column.fixed_bytes for column in columns), np.int64)
    for column in columns:
        if column.kind == "binary":
            starts = run.positions[:, column.first_buffer + 1] // column.width
            ends = np.empty(page.size + 1, np.int64)
            gather_lengths(run.view(np.int32 if column.width == 4 else np.int64), starts, page, row, ends)
            sizes += np.diff(ends)
        elif column.kind == "arrow":
            for position in np.unique(page).tolist():
                here = page == position
                sizes[here] += value_bytes(run.batch(position, [column.name]).column(0))[row[here]]
    return sizes
