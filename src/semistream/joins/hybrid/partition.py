"""Which pages of R are read with those that a stream tuple needs."""

from __future__ import annotations

import numpy as np

from semistream.joins.hybrid.kernels import choose_pages
from semistream.joins.hybrid.page_chains import PageSpan
from semistream.kernels.array_types import Int32s
from semistream.relation.format.page_table import PageTable


class Partitioner:
    """Lays HYBRID's partition p around pages that must be read, as far as it pays: its v_P.

    The pages next to these are read with them if that serves more tuples for the time of the disk, which is taken to
    read ``seek_bytes`` in the time of a seek. That maximises HYBRID's service rate (4) in each iteration, with the
    tuples that really wait for each page instead of their expected number (2). A partition is one run of at most
    ``run_bytes`` and ``run_pages``.
    """

    def __init__(self, table: PageTable, *, run_bytes: int, run_pages: int, seek_bytes: int) -> None:
        self.run_pages = run_pages
        self._table = table
        self._run_bytes = run_bytes
        self._seek_bytes = seek_bytes

    def around(self, needed: PageSpan, waiting: Int32s) -> PageSpan:
        """The partition for the pages ``needed``, or for the first of them if they are no single run.

        ``waiting`` counts the tuples that have yet to meet each page.
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
