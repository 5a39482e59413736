"""SegmentRequest: the read of a run's pages in one column group, and the check of each page on its first read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from semistream.errors import CorruptRelation
from semistream.kernels.array_types import Bytes, Int64s
from semistream.kernels.xxhash64 import hash_ranges
from semistream.relation.format.kernels import first_unsound
from semistream.relation.format.page_layout import SegmentLayout
from semistream.relation.format.page_table import PageTable, SegmentTable
from semistream.relation.read.disk import ReadRequest
from semistream.relation.read.read_plan import Pages


class SegmentRequest(NamedTuple):
    """The read of a run's segments in one column group, and its first byte in the buffer.

    ``codes`` is the number of the buffer with the key codes in the segment, or -1.
    """

    table: PageTable
    segments: SegmentTable
    layout: SegmentLayout
    codes: int
    read: ReadRequest
    begin: int

    def is_verified(self, pages: Pages) -> bool:
        """True if all of these pages were verified before."""
        return bool(self.segments.verified[pages].all())

    def verify(self, pages: Pages, buffer: Bytes, starts: Int64s, lengths: Int64s) -> None:
        """Compare the XXH64 of every page with the page table, and check that no look-up in a page leads out of it.

        A page is verified once per open relation in a process. Published files never change, so later reads of the page
        are trusted. The checksum finds damage; the check of the content finds what was made to be harmful. Both let the
        joining thread run on.
        """
        table = self.segments
        fresh = np.flatnonzero(~table.verified[pages])
        if fresh.size == 0:
            return
        sums = np.zeros(fresh.size, np.uint64)
        pages, starts, lengths = pages[fresh], np.ascontiguousarray(starts[fresh]), np.ascontiguousarray(lengths[fresh])
        hash_ranges(starts, lengths, buffer, sums)
        wrong = np.flatnonzero(sums != table.checksum[pages])
        if wrong.size:
            raise self._corrupt(int(pages[wrong[0]]), "does not match its checksum")
        rows = self.table.rows[pages].astype(np.int64)
        shape = (*self.layout.buffers, self.layout.flat_nodes)
        ends = self.table.first_code[pages], self.table.last_code[pages]
        unsound = first_unsound(buffer, starts, lengths, rows, *shape, self.codes, *ends)
        if unsound >= 0:
            raise self._corrupt(int(pages[unsound]), "is not a page of this relation")
        if self.layout.has_children:
            self._verify_nested(pages, buffer, starts, lengths)
        table.verified[pages] = True

    def _verify_nested(self, pages: Pages, buffer: Bytes, starts: Int64s, lengths: Int64s) -> None:
        for page, start, nbytes in zip(pages.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            message = pa.py_buffer(buffer.data[start : start + nbytes])
            try:
                pa.ipc.read_record_batch(message, self.layout.schema).validate(full=True)
            except (pa.ArrowException, OSError) as error:
                raise self._corrupt(page, f"is not a page of this relation ({error})") from error

    def _corrupt(self, page: int, why: str) -> CorruptRelation:
        offset, nbytes = int(self.segments.offset[page]), int(self.segments.nbytes[page])
        return CorruptRelation(
            f"page {page} ({self.read.path}, bytes {offset} to {offset + nbytes}) {why}. Restore the file from a copy, "
            "or build the relation again."
        )
