"""What reading some of R's pages by the optimal plan is expected to cost, wherever they lie."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from semistream.errors import InvalidArgument
from semistream.relation.disk_costs import DiskCosts
from semistream.relation.page_slots import PageSlots
from semistream.relation.page_table import PageTable, SegmentTable
from semistream.relation.read_plan import optimal_plan

_PLANNED = 1 << 14  # pages of R that are planned for, of one R or of several small ones
_FEW = 64  # wanted pages, of which that part would have too few to tell: then all of R is planned for
_MOST_DRAWS = 64


class ExpectedReads(NamedTuple):
    """How many requests begin with a seek, and how many pages they transfer, those in between included."""

    seeks: float
    pages: float

    def seconds(self, costs: DiskCosts, page_bytes: int) -> float:
        """The time of these reads: SSIJ's S for each seek and T for each page."""
        return costs.request_s(self.pages * page_bytes, self.pages, requests=self.seeks)


@lru_cache(maxsize=1024)
def expected_reads(
    num_pages: int,
    wanted_pages: float,
    costs: DiskCosts,
    *,
    page_bytes: int,
    most_bytes: int,
    most_pages: int | None = None,
) -> ExpectedReads:
    """What the plan of SSIJ IV-D reads if so many of R's pages are wanted, any of them.

    No sequence is longer than ``most_bytes`` and ``most_pages``. SSIJ has a formula for pages that lie as far apart as
    can be (V). Pages that lie anywhere are planned for by the planner itself, on a part of R, or on several of its
    size if it is small: always the same ones, so that two predictions differ only where their arguments do.
    """
    if not 0 <= wanted_pages <= num_pages:
        raise InvalidArgument(f"wanted_pages is {wanted_pages}; R has {num_pages}, so give a number from 0 to that.")
    if wanted_pages == 0:
        return ExpectedReads(0.0, 0.0)
    few = wanted_pages * _PLANNED < _FEW * num_pages
    planned = num_pages if few else min(num_pages, _PLANNED)
    draws = min(max(_PLANNED // planned, 1), _MOST_DRAWS)
    generator = np.random.default_rng(0)
    expected = wanted_pages * planned / num_pages
    wanted = np.concatenate(
        [
            draw * planned + generator.choice(planned, max(int(expected + generator.random()), 1), replace=False)
            for draw in range(draws)
        ]
    )
    wanted.sort()  # far faster than what the planner does to pages that are not in order
    slots = _equal_pages(draws, planned, page_bytes)
    plan = optimal_plan(slots, wanted, costs, most_bytes=most_bytes, most_pages=most_pages)
    first, last = plan.pages[plan.cuts[:-1]], plan.pages[plan.cuts[1:] - 1]
    follows = (first[1:] == last[:-1] + 1) & (first[1:] % planned != 0)
    seeks, pages = len(plan) - int(np.count_nonzero(follows)), int(plan.span_pages.sum())
    return ExpectedReads(seeks * wanted_pages / wanted.size, pages * wanted_pages / wanted.size)


def _equal_pages(relations: int, pages: int, page_bytes: int) -> PageSlots:
    """So many relations, of a file each, whose pages have one size and lie one behind the other."""
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
