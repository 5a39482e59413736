"""Partitioner: the choice of pages to read along with those that a stream tuple needs."""

from __future__ import annotations

import numpy as np

from semistream.joins.hybrid.kernels import choose_pages
from semistream.joins.hybrid.page_chains import PageSpan
from semistream.kernels.array_types import Int32s
from semistream.relation.format.page_table import PageTable


class Partitioner:
    """Extends HYBRID's partition p around the pages to read, as far as it pays: its v_P.

    Neighbouring pages are read too if that serves more tuples per disk time, where a seek takes as long as reading
    ``seek_bytes``. This maximises HYBRID's service rate (4) in each iteration, with the tuples actually waiting for
    each page in place of their expected number (2). A partition is one run of at most ``run_bytes`` and ``run_pages``.
    """

    def __init__(self, table: PageTable, *, run_bytes: int, run_pages: int, seek_bytes: int) -> None:
        self.run_pages = run_pages
        self._table = table
        self._run_bytes = run_bytes
        self._seek_bytes = seek_bytes

    def around(self, needed: PageSpan, waiting: Int32s) -> PageSpan:
        """Return the partition for the pages ``needed``, or for their first run if they are more than one.

        ``waiting`` counts the tuples that still have to meet each page.
        """
        table = self._table
        pages = np.arange(*needed)
        first_run = int(table.cut_runs(pages, self._run_bytes, self.run_pages)[1])
        begin, end = choose_pages(
            table.file,
            table.offset,
            table.nbytes,
            waiting,
            needed.begin,
            needed.begin + first_run,
            self._run_bytes,
            self.run_pages,
            self._seek_bytes,
        )
        return PageSpan(begin, end)
