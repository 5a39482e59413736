"""A run of pages in memory, and the copying of chosen rows out of it into Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.kernels.gather import gather_bits, gather_bytes, gather_lengths, gather_values, gather_wide
from semistream.kernels.ipc_pages import locate_buffers
from semistream.kernels.types import Bytes, Int32s, Int64s
from semistream.relation.page_layout import ColumnLayout, PageLayout

_VALUE_TYPES: dict[int, type[np.generic]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class PageRun:
    """Pages that were read together. It borrows ``buffer``: copy rows out before the buffer is used again.

    ``pages`` are their numbers in the page table, ``starts`` where they stand in the buffer. Rows are named by
    (position of the page in the run, position of the row in the page).
    """

    def __init__(
        self,
        layout: PageLayout,
        buffer: Bytes,
        pages: npt.NDArray[np.intp],
        starts: Int64s,
        rows: Int32s,
        nbytes: Int64s,
    ) -> None:
        self.layout = layout
        self.pages = pages
        self.rows = rows
        self._buffer = buffer
        self._starts = starts
        self._nbytes = nbytes

    @cached_property
    def _positions(self) -> Int64s:
        positions = np.empty((self._starts.size, self.layout.num_buffers), np.int64)
        locate_buffers(self._buffer, self._starts, positions)
        return positions

    @property
    def words(self) -> Int64s:
        """The buffer as 64-bit words: what `code_starts` count in."""
        return self._buffer.view(np.int64)

    @cached_property
    def code_starts(self) -> Int64s:
        """Where each page's key codes start in `words`."""
        return self._positions[:, self.layout.code_buffer] >> 3

    def gather(self, columns: Sequence[ColumnLayout], page: Int32s, row: Int32s) -> list[pa.Array]:
        """Copies of the chosen rows, one array per column."""
        return [self._gather_column(column, page, row) for column in columns]

    def row_bytes(self, columns: Sequence[ColumnLayout], page: Int32s, row: Int32s) -> Int64s:
        """Bytes that `gather` takes for each of the chosen rows; those of nested columns are taken to be alike."""
        sizes = np.full(page.size, sum(_fixed_bytes(column) for column in columns), np.int64)
        for column in columns:
            if column.kind == "binary":
                offset_type = np.int32 if column.width == 4 else np.int64
                starts = self._positions[:, column.first_buffer + 1] // column.width
                ends = np.empty(page.size + 1, np.int64)
                gather_lengths(self._buffer.view(offset_type), starts, page, row, ends)
                sizes += np.diff(ends)
            elif column.kind == "arrow":
                sizes += (self._nbytes // self.rows)[page]
        return sizes

    def message(self, position: int) -> memoryview:
        """The bytes of one page, without a copy."""
        start = int(self._starts[position])
        return self._buffer.data[start : start + int(self._nbytes[position])]

    def batch(self, position: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """One page as Arrow sees it, without a copy."""
        batch = pa.ipc.read_record_batch(pa.py_buffer(self.message(position)), self.layout.schema)
        return batch if columns is None else batch.select(list(columns))

    def _gather_column(self, column: ColumnLayout, page: Int32s, row: Int32s) -> pa.Array:
        if column.kind == "arrow":
            return self._gather_by_arrow(column, page, row)
        validity, nulls = self._gather_validity(column, page, row)
        starts = self._positions[:, column.first_buffer + 1]
        if column.kind == "bits":
            bits = np.empty(page.size, np.bool_)
            gather_bits(self._buffer, starts, page, row, bits)
            buffers = [validity, _packed(bits)]
        elif column.kind == "fixed":
            buffers = [validity, pa.py_buffer(self._gather_fixed(column.width, starts, page, row))]
        else:
            buffers = [validity, *self._gather_binary(column, starts, page, row)]
        return pa.Array.from_buffers(column.type, page.size, buffers, nulls)

    def _gather_validity(self, column: ColumnLayout, page: Int32s, row: Int32s) -> tuple[pa.Buffer | None, int]:
        starts = self._positions[:, column.first_buffer]
        if (starts < 0).all():
            return None, 0
        valid = np.empty(page.size, np.bool_)
        nulls = int(gather_bits(self._buffer, starts, page, row, valid))
        return (_packed(valid), nulls) if nulls else (None, 0)

    def _gather_fixed(self, width: int, starts: Int64s, page: Int32s, row: Int32s) -> npt.NDArray[Any]:
        value_type = _VALUE_TYPES.get(width)
        if value_type is None:
            wide = np.empty(page.size * width, np.uint8)
            gather_wide(self._buffer, width, starts, page, row, wide)
            return wide
        out = np.empty(page.size, value_type)
        gather_values(self._buffer.view(value_type), starts // width, page, row, out)
        return out

    def _gather_binary(self, column: ColumnLayout, starts: Int64s, page: Int32s, row: Int32s) -> list[pa.Buffer]:
        offset_type = np.int32 if column.width == 4 else np.int64
        offsets = self._buffer.view(offset_type)
        offset_starts = starts // column.width
        out_offsets = np.empty(page.size + 1, offset_type)
        total = gather_lengths(offsets, offset_starts, page, row, out_offsets)
        out = np.empty(int(total), np.uint8)
        data_starts = self._positions[:, column.first_buffer + 2]
        gather_bytes(self._buffer, offsets, offset_starts, data_starts, page, row, out_offsets, out)
        return [pa.py_buffer(out_offsets), pa.py_buffer(out)]

    def _gather_by_arrow(self, column: ColumnLayout, page: Int32s, row: Int32s) -> pa.Array:
        """Nested columns: one take per page that has chosen rows (they come grouped by page)."""
        if page.size == 0:
            return pa.array([], column.type)
        begins = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(page)) + 1])
        ends = np.append(begins[1:], page.size)
        return pa.concat_arrays(
            [
                self.batch(int(page[begin]), [column.name]).column(0).take(pa.array(row[begin:end]))
                for begin, end in zip(begins, ends, strict=True)
            ]
        )


def _fixed_bytes(column: ColumnLayout) -> int:
    """Bytes of a value apart from what varies, its bit of validity rounded up to a byte."""
    return column.width + (1 if column.kind != "bits" else 2)


def _packed(bits: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(bits, bitorder="little"))
