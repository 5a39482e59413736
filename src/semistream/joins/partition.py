"""Which pages of R are read for a stream tuple, and which tuples they serve besides it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from semistream.kernels.page_window import choose_pages
from semistream.kernels.types import Int32s
from semistream.relation.page_table import PageTable
from semistream.relation.read_plan import Pages

_LEAST_CODE, _GREATEST_CODE = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Reading:
    """A run of pages, and the buckets of tuples (see `semistream.kernels.buckets`) that it serves.

    Tuples of the buckets from ``begin`` to ``done`` have met all their pages after it. Those of bucket ``done`` have
    pages in this run and in the next one, if ``goes_on``.
    """

    pages: Pages
    begin: int
    done: int
    goes_on: bool


@dataclass(frozen=True)
class Partition:
    """HYBRID's partition p: pages that follow one another in the order of codes, as one or several runs.

    They hold all rows of every code from ``codes[0]`` to ``codes[1]``, and the tuples with these codes are served.
    """

    readings: tuple[Reading, ...]
    codes: tuple[int, int]

    @property
    def buckets(self) -> tuple[int, int]:
        """The buckets served, as begin and end."""
        return self.readings[0].begin, self.readings[-1].done


class Partitioner:
    """Lays a partition around the pages of one code, as far as it pays: HYBRID's index on R, and its v_P.

    The pages next to those of the code are read with them if that serves more tuples for the time of the disk, which is
    taken to read ``seek_bytes`` in the time of a seek. That maximises HYBRID's service rate (4) in each iteration, with
    the tuples that really wait instead of their expected number (2). A partition is one run of at most ``run_bytes``
    and ``run_pages``; only a code whose own pages are no such run has more.
    """

    def __init__(self, table: PageTable, *, run_bytes: int, run_pages: int, seek_bytes: int) -> None:
        self._table = table
        self._run_bytes = run_bytes
        self._run_pages = run_pages
        self._seek_bytes = seek_bytes

    def around(self, code: int, waiting: Int32s) -> Partition:
        """The partition for a code that some page may hold; ``waiting`` counts the tuples in each bucket."""
        table = self._table
        first = int(np.searchsorted(table.last_code, code, "left"))
        end = int(np.searchsorted(table.first_code, code, "right"))
        pages = np.arange(first, end)
        cuts = table.cut_runs(pages, self._run_bytes, self._run_pages)
        if cuts.size == 2:
            first, end = choose_pages(
                table.file,
                table.offset,
                table.nbytes,
                waiting,
                first,
                end,
                self._run_bytes,
                self._run_pages,
                self._seek_bytes,
            )
            pages, cuts = np.arange(first, end), np.array([0, end - first])
        runs = [pages[a:b] for a, b in pairwise(cuts.tolist())]
        return Partition(tuple(self._readings(first, runs)), self._codes(first, end))

    def _readings(self, first: int, runs: list[Pages]) -> list[Reading]:
        # A code that comes from before the partition is left for later; one that comes from the run before goes on.
        begin = 2 * first
        readings = []
        for pages in runs:
            done = self._first_bucket(int(pages[-1]) + 1)
            readings.append(Reading(pages, begin, done, goes_on=pages is not runs[-1] and done % 2 == 1))
            begin = done
        return readings

    def _first_bucket(self, page: int) -> int:
        """The bucket of the first code of a page: the first one that is not done with the pages before it."""
        table = self._table
        if page == len(table):
            return 2 * page
        begins = int(np.searchsorted(table.last_code, table.first_code[page], "left"))
        return 2 * page if begins == page else 2 * begins + 1

    def _codes(self, first: int, end: int) -> tuple[int, int]:
        """The least and the greatest code of which no page outside can hold a row."""
        table = self._table
        low = int(table.last_code[first - 1]) + 1 if first else _LEAST_CODE
        high = int(table.first_code[end]) - 1 if end < len(table) else _GREATEST_CODE
        return low, high
