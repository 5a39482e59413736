"""What one request reads: the segments that a run of pages has in one column group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from semistream.errors import CorruptRelation
from semistream.kernels.types import Bytes, Int64s
from semistream.kernels.xxhash64 import hash_ranges
from semistream.relation.disk import ReadRequest
from semistream.relation.page_table import PageTable, SegmentTable
from semistream.relation.read_plan import Pages


class SegmentRequest(NamedTuple):
    """What is read of a run in one column group, and where in the buffer it is put to."""

    segments: SegmentTable
    read: ReadRequest
    begin: int

    def is_verified(self, pages: Pages) -> bool:
        """Whether all of these pages were checked before."""
        return bool(self.segments.verified[pages].all())

    def verify(self, pages: Pages, buffer: Bytes, starts: Int64s, lengths: Int64s) -> None:
        """Compare the XXH64 of every page with the page table: one kernel call, so that the joining thread runs on.

        A page is checked once for each relation that a process has open. Files never change once they are published,
        so a page that is read again is trusted for what was seen.
        """
        table = self.segments
        fresh = np.flatnonzero(~table.verified[pages])
        if fresh.size == 0:
            return
        sums = np.zeros(fresh.size, np.uint64)
        hash_ranges(starts[fresh], lengths[fresh], buffer, sums)
        pages = pages[fresh]
        wrong = np.flatnonzero(sums != table.checksum[pages])
        if wrong.size:
            page = int(pages[wrong[0]])
            offset, nbytes = int(table.offset[page]), int(table.nbytes[page])
            raise CorruptRelation(
                f"page {page} ({self.read.path}, bytes {offset} to {offset + nbytes}) does not match its "
                "checksum. Restore the file from a copy, or build the relation again."
            )
        table.verified[pages] = True


def span_of(table: PageTable | SegmentTable, pages: Pages) -> tuple[int, int]:
    """Where a run starts in its file, and how many bytes it has there with all between its pages."""
    start, last = int(table.offset[pages[0]]), pages[-1]
    return start, int(table.offset[last] + table.nbytes[last]) - start
