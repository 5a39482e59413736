"""What one request reads: the segments that a run of pages has in one column group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from semistream.errors import CorruptRelation
from semistream.kernels.types import Bytes, Int64s
from semistream.kernels.xxhash64 import hash_ranges
from semistream.relation.disk import Disk
from semistream.relation.page_table import PageTable, SegmentTable
from semistream.relation.read_plan import Pages


@dataclass(frozen=True)
class SegmentRequest:
    """What is read of a run in one column group: ``nbytes`` of a file, which ``read`` puts into a buffer."""

    file: Path
    segments: SegmentTable
    nbytes: int
    read: Callable[[Bytes], int]

    @classmethod
    def of(cls, disk: Disk, file: Path, segments: SegmentTable, pages: Pages, span_pages: int) -> SegmentRequest:
        """Have the disk count it."""
        offset, nbytes = span_of(segments, pages)
        return cls(file, segments, nbytes, disk.request(file, offset, nbytes, pages=span_pages))

    def read_into(self, buffer: Bytes, begin: int, pages: Pages) -> tuple[Int64s, Int64s]:
        """Read into the buffer from ``begin`` on; gives where the pages' segments start, and their bytes."""
        offset, lengths = self.segments.offset[pages], self.segments.nbytes[pages]
        starts = offset - offset[0] + (begin + self.read(buffer[begin:]))
        self._verify(pages, buffer, starts, lengths)
        return starts, lengths

    def _verify(self, pages: Pages, buffer: Bytes, starts: Int64s, lengths: Int64s) -> None:
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
            offset = int(table.offset[page])
            raise CorruptRelation(
                f"page {page} ({self.file}, bytes {offset} to {offset + int(table.nbytes[page])}) does not match its "
                "checksum. Restore the file from a copy, or build the relation again."
            )
        table.verified[pages] = True


def span_of(table: PageTable | SegmentTable, pages: Pages) -> tuple[int, int]:
    """Where a run starts in its file, and how many bytes it has there with all between its pages."""
    start, last = int(table.offset[pages[0]]), pages[-1]
    return start, int(table.offset[last] + table.nbytes[last]) - start
