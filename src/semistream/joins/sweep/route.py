"""PageSweep: the route of a sweep over the wanted pages of R, in disk order, round after round."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.joins.sweep.kernels.match import flag_pages
from semistream.kernels.array_types import Int64s
from semistream.relation import PageSequence, PageSlots, Relation, optimal_plan
from semistream.relation.read.disk_costs import DiskCosts
from semistream.relation.read.read_plan import plan_memory_bytes

_PLANNED = 1024  # most wanted pages to plan at once; the last sequence is planned again, as it may continue


class PageSweep:
    """The set of wanted pages, and the plan of what to read next.

    A place is a page's position in disk order. ``passed`` counts the places read or skipped since the start: a tuple
    that enters at some count has met all of R when ``num_pages`` more have passed. The plan reads an unwanted page
    only where that is cheaper than a seek (SSIJ IV-D). A sequence has at most ``run_bytes`` and ``run_pages``;
    one that is adjacent to its predecessor costs less than a seek.
    """

    def __init__(self, relation: Relation, costs: DiskCosts, *, run_bytes: int, run_pages: int) -> None:
        self.num_pages = relation.num_pages
        self.passed = 0
        self._table = relation.table
        self._costs = costs
        self._most_bytes, self._most_pages = run_bytes, run_pages
        self._slots = PageSlots.of(relation.table)
        self._order = relation.table.scan_order()
        self.in_key_order = bool(np.all(np.diff(self._order) > 0))
        self._places = np.empty(self._order.size, np.int32)
        self._places[self._order] = np.arange(self._order.size, dtype=np.int32)
        self._wanted = np.zeros(self._order.size, np.bool_)  # by place
        self._plan: deque[tuple[PageSequence, Int64s]] = deque()  # with the count at which each page is passed

    @staticmethod
    def memory_bytes(pages: int) -> int:
        """Return the bytes needed for a relation of ``pages`` pages."""
        return PageSlots.memory_bytes(pages) + pages * (8 + 4 + 1) + plan_memory_bytes(min(pages, _PLANNED))

    def want(self, codes: npt.NDArray[Any], base: int, shift: int, ends: Int64s | None) -> None:
        """Add the pages that may hold some codes to the wanted pages.

        ``codes`` are ascending distances from ``base``, without their lowest ``shift`` bits. If there are ``ends``,
        each code starts a range, which includes its end; ``base`` and ``shift`` are then unused.
        """
        first, last = self._table.first_code, self._table.last_code
        if ends is None:
            flag_pages(codes, base, shift, first, last, self._places, self._wanted)
        else:
            begin = np.searchsorted(last, codes, "left")
            end = np.maximum(np.searchsorted(first, ends, "right"), begin)
            change = np.bincount(begin, minlength=first.size + 1) - np.bincount(end, minlength=first.size + 1)
            self._wanted[self._places[np.cumsum(change[:-1]) > 0]] = True
        self._plan.clear()

    def codes_met(self, since: int, met: int) -> tuple[int | None, int, bool]:
        """Return ``(after, before, either)``: the codes whose pages were all passed between two counts.

        These are the codes greater than ``after`` (None: no bound) and less than ``before``; if ``either`` is True,
        the codes that satisfy one of the two. The counts must be less than ``num_pages`` apart, and pages must lie on
        disk in code order.
        """
        begin, end = since % self.num_pages, met % self.num_pages
        after = int(self._table.last_code[begin - 1]) if begin else None
        return after, int(self._table.first_code[end]), met // self.num_pages > since // self.num_pages

    @property
    def pages_wanted(self) -> int:
        """Pages that tuples wait for and that have not been requested yet."""
        return int(np.count_nonzero(self._wanted))

    def next(self) -> tuple[PageSequence, Int64s] | None:
        """Return the next sequence to read and the count at which each of its pages is passed; None if none is wanted.

        The sweep moves on past it.
        """
        if not self._plan and not self._look_ahead():
            return None
        sequence, counts = self._plan.popleft()
        first, last = int(counts[0]), int(counts[-1])
        begin = first % self.num_pages
        self._wanted[begin : begin + last - first + 1] = False  # pages between are unwanted already
        self.passed = last + 1
        return sequence, counts

    def peek(self) -> int | None:
        """Return the count at which the next wanted page is passed; None if no page is wanted."""
        if not self._plan and not self._look_ahead():
            return None
        return int(self._plan[0][1][0])

    def _look_ahead(self) -> bool:
        """Plan the next wanted pages up to the end of the disk, or else from its beginning; False if there are none."""
        at = self.passed % max(self.num_pages, 1)
        for begin, end, start in ((at, self.num_pages, self.passed - at), (0, at, self.passed - at + self.num_pages)):
            places = np.flatnonzero(self._wanted[begin : min(end, begin + 2 * _PLANNED)]) + begin
            if places.size < _PLANNED and begin + 2 * _PLANNED < end:
                places = np.flatnonzero(self._wanted[begin:end]) + begin
            if places.size:
                some = self._order[places[:_PLANNED]]
                plan = optimal_plan(
                    self._slots,
                    some,
                    self._costs,
                    most_bytes=self._most_bytes,
                    most_pages=self._most_pages,
                    goes_on=True,
                )
                counts = np.split(self._places[plan.pages] + np.int64(start), plan.cuts[1:-1])
                self._plan.extend(zip(plan.located(self._table.segments), counts, strict=True))
                if places.size > _PLANNED and len(self._plan) > 1:
                    self._plan.pop()
                return True
        return False
