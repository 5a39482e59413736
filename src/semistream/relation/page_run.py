"""A run of pages in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.kernels.ipc_pages import filled_buffers, locate_buffers
from semistream.kernels.types import Bytes, Int32s, Int64s
from semistream.relation.page_layout import ColumnLayout, PageLayout
from semistream.relation.row_gatherer import RowGatherer


class PageRun:
    """Pages that were read together. It borrows ``buffer``: copy rows out before the buffer is used again.

    ``pages`` are their numbers in the page table, ``starts`` and ``nbytes`` where they stand in the buffer. Rows are
    named by (position of the page in the run, position of the row in the page).
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
        self.buffer = buffer
        self.pages = pages
        self.rows = rows
        self.starts = starts
        self.nbytes = nbytes

    def part(self, begin: int, end: int) -> PageRun:
        """The pages from position ``begin`` to ``end``, in the same buffer."""
        if (begin, end) == (0, self.pages.size):
            return self
        some = slice(begin, end)
        return PageRun(
            self.layout, self.buffer, self.pages[some], self.starts[some], self.rows[some], self.nbytes[some]
        )

    @cached_property
    def positions(self) -> Int64s:
        """Where each buffer of each page starts, by page and by the layout's number of the buffer; -1 if empty."""
        positions = np.empty((self.starts.size, self.layout.num_buffers), np.int64)
        locate_buffers(self.buffer, self.starts, positions)
        return positions

    def view(self, value_type: type[np.generic]) -> npt.NDArray[Any]:
        """The buffer as values of a type."""
        return self.buffer.view(value_type)

    @property
    def words(self) -> Int64s:
        """The buffer as 64-bit words: what `code_starts` count in."""
        return self.buffer.view(np.int64)

    @cached_property
    def code_starts(self) -> Int64s:
        """Where each page's key codes start in `words`."""
        return self.positions[:, self.layout.code_buffer] >> 3

    @cached_property
    def filled(self) -> list[bool]:
        """For each buffer, whether any page has it: a validity bitmap is there only if there are nulls."""
        return list(filled_buffers(self.positions).tolist())

    def gather(self, columns: Sequence[ColumnLayout], page: Int32s, row: Int32s) -> list[pa.Array]:
        """Copies of the chosen rows, one array per column."""
        gatherer = RowGatherer(columns, page.size)
        gatherer.append(self, page, row)
        return gatherer.finish()

    def message(self, position: int) -> memoryview:
        """The bytes of one page, without a copy."""
        start = int(self.starts[position])
        return self.buffer.data[start : start + int(self.nbytes[position])]

    def batch(self, position: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """One page as Arrow sees it, without a copy."""
        batch = pa.ipc.read_record_batch(pa.py_buffer(self.message(position)), self.layout.schema)
        return batch if columns is None else batch.select(list(columns))
