"""The cyclic scan of R: its pages in the order of the disk, over and over, read ahead in runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from semistream.relation import PageRun, RunReader
from semistream.relation.null_pages import NullKeyPages
from semistream.relation.page_table import PageTable


class CyclicScan:
    """Gives R's pages in the order in which they lie on disk, and starts again at their end.

    Places in the scan are page counters: pages since the operator was made, which never wrap. ``position`` is where the
    join stands, ``asked`` how far the reader was asked to read. A run is what one request reads; the join takes it
    whole or part by part. ``nulls`` are pages of rows with a null key: they come behind the others, one by one.
    """

    def __init__(self, table: PageTable, reader: RunReader, nulls: NullKeyPages | None = None) -> None:
        self._table = table
        self._nulls = nulls
        self._null_pages: Iterator[PageRun] = iter(())
        self.num_pages = len(table) + (nulls.count if nulls else 0)
        self.reader = reader
        self._order = table.scan_order()
        self._extent_ends = table.extent_ends(self._order)
        self._run: PageRun | None = None
        self._run_ends = 0
        self.position = 0
        self.asked = 0

    @staticmethod
    def memory_bytes(num_pages: int) -> int:
        """Bytes of the order of so many pages and of the ends of its extents, each of which may be one page."""
        return num_pages * (8 + 8)

    @property
    def can_ask(self) -> bool:
        """Whether a buffer is free for another run."""
        return self.reader.room > 0

    def count_runs(self, run_pages: int) -> int:
        """Runs of at most ``run_pages`` that make one scan."""
        cuts = self._table.cut_runs(self._order, self.reader.run_bytes, run_pages)
        return cuts.size - 1 + self.num_pages - len(self._table)

    def ask(self, until: int) -> None:
        """Start to read the next run: up to ``until``, the end of the pages that lie together, or a full buffer."""
        at = self.asked % self.num_pages
        if at >= len(self._table):
            self.asked += 1
            return
        extent_end = int(self._extent_ends[np.searchsorted(self._extent_ends, at, "right")])
        pages = self._order[at : min(extent_end, at + until - self.asked)]
        pages = pages[: self._table.fitting(pages, self.reader.run_bytes)]
        self.reader.ask(pages)
        self.asked += pages.size

    def take(self, until: int) -> PageRun:
        """The pages at ``position``, up to ``until`` or the end of their run; valid until `advance`."""
        if self._run is None:
            at = self.position % self.num_pages
            if at == len(self._table) and self._nulls:
                self._null_pages = self._nulls.read()
            self._run = self.reader.take() if at < len(self._table) else next(self._null_pages)
            self._run_ends = self.position + self._run.pages.size
        begin = self._run.pages.size - (self._run_ends - self.position)
        return self._run.part(begin, begin + min(until, self._run_ends) - self.position)

    def advance(self, pages: int) -> None:
        """Say that so many pages of what was taken are joined: a run that is through gives its buffer back."""
        self.position += pages
        if self.position == self._run_ends:
            self._run = None
            self.reader.give_back()

    def close(self) -> None:
        """End the reader's thread and close files."""
        self._run = None
        self._null_pages = iter(())
        self.reader.close()
