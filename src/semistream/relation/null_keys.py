"""R's rows with a null key as pages, for joins whose condition is not on the key and so must visit these rows too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.kernels.page_cuts import cut_pages
from semistream.keys.plain_types import empty_batch
from semistream.relation.format.arrow_files import sound_batches
from semistream.relation.format.page_layout import PageLayout
from semistream.relation.format.row_sizes import row_ends
from semistream.relation.read.disk import DiskCounts
from semistream.relation.read.page_run import PageRun
from semistream.relation.write.page_writer import frame_bytes
from semistream.relation.write.version_draft import check_whole

if TYPE_CHECKING:
    from semistream.relation.relation import Relation

MOST_ROWS = 1024
"""Maximum rows in a page built in memory."""

WORKING_BYTES = 64 * MOST_ROWS
"""Bytes of working memory needed to cut rows into pages, besides the page itself."""


class NullKeyPages:
    """The rows with a null key, which have no pages on disk, as runs of one page each.

    The rows lie in Arrow files of their own. These are memory-mapped, so the operating system can reclaim their memory
    at any time. A page is a copy of up to `MOST_ROWS` rows in the layout of R's pages, no larger than R's page size
    unless a single row is; its key codes are meaningless. There are ``count`` pages of at most ``largest`` bytes. Reads
    are added to ``counts``.
    """

    def __init__(self, relation: Relation, counts: DiskCounts | None = None) -> None:
        self._layout, self._schema = relation.layout.in_one_segment, relation.manifest.schema
        self._frame = frame_bytes(self._layout)
        self._room = relation.manifest.page_bytes - self._frame
        self._files = [check_whole(relation.path, file) for file in relation.manifest.null_files]
        self.counts = DiskCounts() if counts is None else counts
        self.count, self.largest = 0, 0
        for _, nbytes in self._pages():
            self.count += 1
            self.largest = max(self.largest, nbytes)

    def read(self) -> Iterator[PageRun]:
        """Yield the pages, in the same order every time."""
        for rows, _ in self._pages():
            run = page_of(rows, self._layout)
            self.counts.requests += 1
            self.counts.seeks += 1
            self.counts.pages += 1
            self.counts.bytes += run.buffer.size
            yield run

    def _pages(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows of each page and an upper bound on the page's bytes."""
        for rows in self._pieces():
            ends = row_ends(rows, self._layout)
            cuts = [*cut_pages(ends, self._room).tolist(), rows.num_rows]
            for begin, end in pairwise(cuts):
                nbytes = int(ends[end - 1]) - (int(ends[begin - 1]) if begin else 0)
                yield rows.slice(begin, end - begin), self._frame + nbytes

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        for path in self._files:
            for batch in sound_batches(path, self._schema):
                for start in range(0, batch.num_rows, MOST_ROWS):
                    yield with_code_column(batch.slice(start, MOST_ROWS), self._layout)


def with_code_column(rows: pa.RecordBatch, layout: PageLayout) -> pa.RecordBatch:
    """Return rows of R in the columns of its pages, with zeros as codes."""
    return layout.stored(rows, np.zeros(rows.num_rows, np.int64))


def page_of(rows: pa.RecordBatch, layout: PageLayout) -> PageRun:
    """Copy rows in the columns of ``layout``, which must have one segment, into a run of one page."""
    no_rows = empty_batch(layout.schema)
    content = pa.concat_batches([rows, no_rows]).serialize()  # Arrow would serialize a slice with more than its rows
    buffer = np.frombuffer(content, np.uint8)
    start = np.zeros((1, 1), np.int64)
    rows_of_page = np.array([rows.num_rows], np.int32)
    return PageRun(layout, buffer, np.zeros(1, np.intp), start, rows_of_page, start + buffer.size)
