"""PageRun: a run of pages in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import CorruptRelation
from semistream.kernels.array_types import Bytes, Int32s, Int64s
from semistream.relation.format.kernels import filled_buffers, locate_buffers
from semistream.relation.format.page_layout import ColumnLayout, PageLayout
from semistream.relation.read.row_gatherer import RowGatherer


class PageRun:
    """Pages read together. The run borrows ``buffer``: copy rows out before the buffer is reused.

    ``pages`` are the page numbers in the page table. ``starts[segment, page]`` and ``nbytes[segment, page]`` locate the
    segments of ``layout`` in the buffer. A row is identified by (position of the page in the run, position of the row
    in the page).
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
        self._positions: Int64s | None = None
        self._code_starts: Int64s | None = None
        self._filled: list[bool] | None = None

    def part(self, begin: int, end: int) -> PageRun:
        """Return the pages from position ``begin`` to ``end`` as a run in the same buffer."""
        if (begin, end) == (0, self.pages.size):
            return self
        some = slice(begin, end)
        starts, nbytes = self.starts[:, some], self.nbytes[:, some]
        return PageRun(self.layout, self.buffer, self.pages[some], starts, self.rows[some], nbytes)

    @property
    def positions(self) -> Int64s:
        """Start of each buffer, by page and by the buffer's number in the layout; -1 if empty."""
        if self._positions is None:
            self._positions = np.empty((self.pages.size, self.layout.num_buffers), np.int64)
            for segment, starts in zip(self.layout.segments, self.starts, strict=True):
                locate_buffers(self.buffer, starts, segment.first_buffer, segment.num_buffers, self._positions)
        return self._positions

    def view(self, value_type: type[np.generic]) -> npt.NDArray[Any]:
        """Return the buffer viewed as values of a type."""
        return self.buffer.view(value_type)

    @property
    def words(self) -> Int64s:
        """The buffer viewed as 64-bit words, the unit of `code_starts`."""
        return self.buffer.view(np.int64)

    @property
    def code_starts(self) -> Int64s:
        """Start of each page's key codes in `words`."""
        if self._code_starts is None:
            self._code_starts = self.positions[:, self.layout.code_buffer] >> 3
        return self._code_starts

    @property
    def filled(self) -> list[bool]:
        """Flag per buffer: True if any page has it. A validity bitmap exists only if there are nulls."""
        if self._filled is None:
            self._filled = filled_buffers(self.positions).tolist()
        return self._filled

    def gather(self, columns: Sequence[ColumnLayout], page: Int32s, row: Int32s) -> list[pa.Array]:
        """Copy the chosen rows into one array per column."""
        gatherer = RowGatherer(columns, page.size)
        gatherer.append(self, page, row)
        return gatherer.finish()

    def message(self, position: int, segment: int = 0) -> memoryview:
        """Return the bytes of one page in a column group, without a copy."""
        start = int(self.starts[segment, position])
        return self.buffer.data[start : start + int(self.nbytes[segment, position])]

    def batch(self, position: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return one page as an Arrow record batch, without a copy."""
        segments = self.layout.segments
        names = self.layout.schema.names if columns is None else list(columns)
        used = [i for i, segment in enumerate(segments) if not set(names).isdisjoint(segment.schema.names)] or [0]
        messages = (pa.py_buffer(self.message(position, i)) for i in used)
        try:
            batches = [pa.ipc.read_record_batch(m, segments[i].schema) for i, m in zip(used, messages, strict=True)]
        except (OSError, pa.ArrowException) as error:  # its message announces what it does not have
            raise CorruptRelation(
                f"page {int(self.pages[position])} is not a page of this relation ({error}). Restore its file from a "
                "copy, or build the relation again."
            ) from error
        if len(batches) == 1:
            return batches[0] if columns is None else batches[0].select(names)
        found = {field.name: array for batch in batches for field, array in zip(batch.schema, batch, strict=True)}
        schema = pa.schema([self.layout.schema.field(name) for name in names])
        return pa.RecordBatch.from_arrays([found[name] for name in names], schema=schema)
