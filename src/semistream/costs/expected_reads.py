"""Expected cost of reading randomly placed pages of R by the optimal read plan."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Floats, Int32s
from semistream.relation.format.page_table import PageTable, SegmentTable
from semistream.relation.read.disk_costs import DiskCosts
from semistream.relation.read.read_plan import Pages, PageSlots, optimal_plan

_PLANNED = 1 << 14  # pages in the plan: a part of a large R, or several copies of a small one
_FEW = 64  # wanted pages in that part; with fewer, the estimate is too coarse and all of R is planned
_MOST_DRAWS = 64  # copies of a small R


class ExpectedReads(NamedTuple):
    """Number of seeks and of pages transferred, including unwanted pages read to bridge gaps."""

    seeks: float
    pages: float

    def plus(self, other: ExpectedReads) -> ExpectedReads:
        """Return the sum of these reads and others."""
        return ExpectedReads(self.seeks + other.seeks, self.pages + other.pages)

    def times(self, often: float) -> ExpectedReads:
        """Return these reads multiplied by ``often``."""
        return ExpectedReads(often * self.seeks, often * self.pages)


@lru_cache(maxsize=1024)
def expected_reads(
    num_pages: int,
    wanted_pages: float,
    costs: DiskCosts,
    *,
    page_bytes: int,
    most_bytes: int,
    most_pages: int | None = None,
    goes_on: bool = False,
) -> ExpectedReads:
    """Return the expected reads of the plan of SSIJ IV-D for ``wanted_pages`` random pages of R.

    No sequence is longer than ``most_bytes`` and ``most_pages``. SSIJ V has a formula for pages spread as far apart as
    possible. For random pages this function runs the planner itself, on a part of R or, if R is small, on several
    relations of its size. The random draws are fixed, so two predictions differ only if their arguments do.
    `optimal_plan` explains ``goes_on``.
    """
    if not 0 <= wanted_pages <= num_pages:
        raise InvalidArgument(f"wanted_pages is {wanted_pages}; give 0 to {num_pages}, the number of R's pages.")
    if wanted_pages == 0:
        return ExpectedReads(0.0, 0.0)
    few = wanted_pages * _PLANNED < _FEW * num_pages
    planned = num_pages if few else min(num_pages, _PLANNED)
    if planned > _PLANNED:
        slots, wanted = _equal_pages(1, planned, page_bytes), _some(planned, wanted_pages)
    else:
        drawn = _drawn(min(max(_PLANNED // planned, 1), _MOST_DRAWS), planned, page_bytes)
        slots, wanted = drawn.slots, drawn.wanted(wanted_pages * planned / num_pages)
    plan = optimal_plan(slots, wanted, costs, most_bytes=most_bytes, most_pages=most_pages, goes_on=goes_on)
    pages = int(plan.span_pages.sum())
    return ExpectedReads(plan.seeks * wanted_pages / wanted.size, pages * wanted_pages / wanted.size)


class _Drawn(NamedTuple):
    """Relations to draw pages from, those of low ``rank`` first: a larger draw contains every smaller one."""

    slots: PageSlots
    rank: Int32s
    fraction: Floats

    def wanted(self, expected: float) -> Pages:
        """Draw ``expected`` pages of each relation on average, and at least one."""
        counts = np.maximum((expected + self.fraction).astype(np.int64), 1)
        return np.flatnonzero(self.rank < counts[:, np.newaxis])


@lru_cache(maxsize=1)
def _drawn(relations: int, pages: int, page_bytes: int) -> _Drawn:
    generator = np.random.default_rng(0)
    rank = np.tile(np.arange(pages, dtype=np.int32), (relations, 1))
    generator.permuted(rank, axis=1, out=rank)
    return _Drawn(_equal_pages(relations, pages, page_bytes), rank, generator.random(relations))


def _some(pages: int, wanted: float) -> Pages:
    """Draw about ``wanted`` of ``pages`` pages, where ``wanted`` is far smaller."""
    generator = np.random.default_rng(0)
    return np.sort(generator.choice(pages, max(int(wanted + generator.random()), 1), replace=False))


def _equal_pages(relations: int, pages: int, page_bytes: int) -> PageSlots:
    """Lay out relations of one file each, with consecutive pages of equal size."""
    numbers = np.arange(relations * pages, dtype=np.int64)
    segment = SegmentTable.unverified(
        offset=numbers % pages * page_bytes,
        nbytes=np.full(numbers.size, page_bytes, np.int64),
        checksum=np.zeros(numbers.size, np.uint64),
    )
    table = PageTable(
        file=(numbers // pages).astype(np.int32),
        rows=np.ones(numbers.size, np.int32),
        first_code=numbers,
        last_code=numbers,
        segments=(segment,),
    )
    return PageSlots.of(table)
