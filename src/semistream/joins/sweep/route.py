"""The way of a sweep: over the pages that tuples wait for, in the order of the disk, round and round."""

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

_PLANNED = 1024  # wanted pages at most; the last sequence is planned again, as it may go on behind them


class PageSweep:
    """Which pages are wanted, and what is to be read next.

    Places are positions in the order of the disk, and ``passed`` counts the places that were read or passed over since
    the start: a tuple that comes at some count has met all of R when ``num_pages`` more have passed. Pages that nobody
    waits for are read along only where that is cheaper than a seek (SSIJ IV-D); a sequence has at most ``run_bytes``
    and ``run_pages``, and the next one goes on where it ended if the disk's head can.
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
        self._plan: deque[tuple[PageSequence, Int64s]] = deque()  # and the counts at which its pages are passed

    @staticmethod
    def memory_bytes(pages: int) -> int:
        """Bytes it takes for a relation of so many pages."""
        return PageSlots.memory_bytes(pages) + pages * (8 + 4 + 1) + plan_memory_bytes(min(pages, _PLANNED))

    def want(self, codes: npt.NDArray[Any], base: int, shift: int, ends: Int64s | None) -> None:
        """Tuples wait that ask for these codes: ascending, without their lowest ``shift`` bits, and to which ``base``
        is to be added; where there are ``ends``, for all from each of them to its end.
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
        """Codes of which all pages were passed between two counts, less than ``num_pages`` apart: those after the
        first, if it is not None, and before the second; or, if the third says so, those that are either.

        Pages must be in the order of their codes on the disk.
        """
        begin, end = since % self.num_pages, met % self.num_pages
        after = int(self._table.last_code[begin - 1]) if begin else None
        return after, int(self._table.first_code[end]), met // self.num_pages > since // self.num_pages

    @property
    def pages_wanted(self) -> int:
        """Pages that tuples wait for and that are not asked for yet."""
        return int(np.count_nonzero(self._wanted))

    def next(self) -> tuple[PageSequence, Int64s] | None:
        """What to read next, and the count at which each of its pages is passed; None if nothing is wanted."""
        if not self._plan and not self._look_ahead():
            return None
        sequence, counts = self._plan.popleft()
        first, last = int(counts[0]), int(counts[-1])
        begin = first % self.num_pages
        self._wanted[begin : begin + last - first + 1] = False  # what is not wanted in between stays so
        self.passed = last + 1
        return sequence, counts

    def peek(self) -> int | None:
        """The count at which the next wanted page is passed; None if nothing is wanted."""
        if not self._plan and not self._look_ahead():
            return None
        return int(self._plan[0][1][0])

    def _look_ahead(self) -> bool:
        """Plan the way over the wanted pages that come next: to the end of the disk, else from its beginning."""
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
