"""The read plan of SSIJ IV-D: which wanted pages are worth one sequential read, and which a seek each.

=====================  =============================================================================================
SSIJ                   here
=====================  =============================================================================================
P_u                    ``wanted``
S, T                   `DiskCosts`: T per byte, since pages differ in size, or per page; a sequence costs S and the
                       transfer of all that lies from its first page to its last
maxScan                ``most_bytes`` of a sequence, and ``most_pages`` if given
maxDist                follows from the costs: an optimal plan reads across unwanted pages if and only if their transfer
                       takes less than a seek, as far as the limits allow
=====================  =============================================================================================

The places of pages on disk, counted in pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int32s, Int64s
from semistream.relation.format.page_table import PageTable, SegmentTable
from semistream.relation.read.disk_costs import DiskCosts
from semistream.relation.read.kernels.cut_plan import count_following, cut_greedily, cut_optimally, number_slots

_BYTES_KEPT = 4
_BYTES_BUILDING = 20  # the order on disk, and what sorting it takes


@dataclass(frozen=True)
class PageSlots:
    """For each page its slot: the slots of a file are numbered as they lie, and those of the next file follow.

    Two pages of one file are ``slot[b] - slot[a]`` apart: the distance of SSIJ IV-D. A file may still hold pages that
    an update has replaced; the page table does not know them, but whoever reads across them reads them too. They take
    as many slots as there would be pages of the file's mean size in their bytes, and at least one.
    """

    table: PageTable
    slot: Int32s

    @classmethod
    def of(cls, table: PageTable) -> PageSlots:
        """Number the slots of a table's pages."""
        slot = np.empty(len(table), np.int32)
        pages_of_file = np.bincount(table.file)
        mean_bytes = np.bincount(table.file, weights=table.nbytes) / np.maximum(pages_of_file, 1)
        number_slots(table.scan_order(), table.file, table.offset, table.nbytes, mean_bytes, slot)
        return cls(table, slot)

    @staticmethod
    def memory_bytes(pages: int) -> int:
        """Most bytes that the slots of a table of ``pages`` take while they are numbered; 4 a page stay."""
        return pages * (_BYTES_KEPT + _BYTES_BUILDING)


Pages = npt.NDArray[np.intp]

_NO_LIMIT = 1 << 40
_BYTES_PER_PAGE = 80
_LEAST_FOLLOWS = 1e-3  # of a seek, that a request counts at least: where it makes no difference, fewer are better


class PageSequence(NamedTuple):
    """What is read at once: the wanted pages, and how many there are from the first of them to the last.

    ``spans`` say where that is in each column group, and how many bytes, if somebody has found out already.
    """

    pages: Pages
    span_pages: int
    spans: Sequence[tuple[int, int]] | None = None


@dataclass(frozen=True)
class ReadPlan:
    """Sequences in the order of the disk: they do not overlap, begin and end with a wanted page, and cover each once.

    ``pages`` are the wanted ones as they lie on disk; sequence ``i`` has those from ``cuts[i]`` to ``cuts[i + 1]``.
    ``span_bytes`` and ``span_pages`` are what reading it transfers, ``cost_s`` what the whole plan is expected to take.
    So many ``seeks`` are needed: a sequence that begins where the one before ended needs none.
    """

    pages: Pages
    cuts: Int64s
    span_bytes: Int64s
    span_pages: Int64s
    seeks: int
    cost_s: float

    def __len__(self) -> int:
        return self.cuts.size - 1

    def __iter__(self) -> Iterator[PageSequence]:
        spans = zip(pairwise(self.cuts.tolist()), self.span_pages.tolist(), strict=True)
        return (PageSequence(self.pages[begin:end], span) for (begin, end), span in spans)

    def located(self, segments: Sequence[SegmentTable]) -> Iterator[PageSequence]:
        """The sequences with their spans in these column groups."""
        first, last = self.pages[self.cuts[:-1]], self.pages[self.cuts[1:] - 1]
        spans = []
        for segment in segments:
            begin = segment.offset[first]
            nbytes = segment.offset[last] + segment.nbytes[last] - begin
            spans.append(zip(begin.tolist(), nbytes.tolist(), strict=True))
        return (sequence._replace(spans=spans) for sequence, *spans in zip(self, *spans, strict=True))


def plan_memory_bytes(wanted: int) -> int:
    """Most bytes that it takes to plan for so many pages, the plan included."""
    return _BYTES_PER_PAGE * (wanted + 1)


def optimal_plan(
    slots: PageSlots,
    wanted: Pages,
    costs: DiskCosts,
    *,
    most_bytes: int,
    most_pages: int | None = None,
    goes_on: bool = False,
) -> ReadPlan:
    """The cheapest plan there is (SSIJ IV-D), in time linear in ``wanted`` once they are in the order of the disk.

    ``wanted`` are page numbers in any order; one that is named twice is read once. No sequence spans more than
    ``most_bytes`` and ``most_pages``, unless a single page does. SSIJ's own program takes O(|P_u| * maxScan).

    In SSIJ every sequence costs a seek, also one that is behind another only because that is as long as can be. Who
    reads them all one after the other ``goes_on`` there for less (`DiskCosts.follows`), and cuts long ones where wanted
    pages lie side by side rather than at a gap, however small, which would have the head seek.
    """
    follows = max(costs.follows, _LEAST_FOLLOWS) if goes_on else 1.0
    limits = _limits(most_bytes, most_pages)
    pages = _in_disk_order(slots, wanted)
    cuts, ends, queue = (np.empty(pages.size + 1, np.int64) for _ in range(3))
    sequences = cut_optimally(
        pages,
        *_places(slots),
        costs.seek_s,
        costs.seek_s * (1 - follows),
        costs.transfer_s_per_byte,
        costs.transfer_s_per_page,
        *limits,
        np.empty(pages.size, np.float64),
        ends,
        queue,
        cuts,
    )
    return _plan(slots, pages, cuts[: sequences + 1].copy(), costs, follows)


def greedy_plan(
    slots: PageSlots,
    wanted: Pages,
    costs: DiskCosts,
    *,
    most_unwanted: int,
    most_bytes: int,
    most_pages: int | None = None,
) -> ReadPlan:
    """The plan of Seeger et al. ([17] in SSIJ IV-D): sequences as long as may be, from the first page on.

    None has more than ``most_unwanted`` (k) unwanted pages in a row. It is never cheaper than `optimal_plan`, and there
    is no bound on how much dearer it is.
    """
    if most_unwanted < 0:
        raise InvalidArgument(f"most_unwanted is {most_unwanted}; give 0 or more pages.")
    limits = _limits(most_bytes, most_pages)
    pages = _in_disk_order(slots, wanted)
    cuts = np.empty(pages.size + 1, np.int64)
    sequences = cut_greedily(pages, *_places(slots), most_unwanted, *limits, cuts)
    return _plan(slots, pages, cuts[: sequences + 1].copy(), costs)


def _plan(slots: PageSlots, pages: Pages, cuts: Int64s, costs: DiskCosts, follows: float = 1.0) -> ReadPlan:
    table = slots.table
    first, last = pages[cuts[:-1]], pages[cuts[1:] - 1]
    span_bytes = table.offset[last] + table.nbytes[last] - table.offset[first]
    span_pages = slots.slot[last].astype(np.int64) - slots.slot[first] + 1
    following = count_following(pages, cuts, table.file, table.offset, table.nbytes)
    seeks = cuts.size - 1 - following
    cost_s = costs.request_s(int(span_bytes.sum()), int(span_pages.sum()), seeks + follows * following)
    return ReadPlan(pages, cuts, span_bytes, span_pages, seeks, cost_s)


def _limits(most_bytes: int, most_pages: int | None) -> tuple[int, int]:
    most_pages = _NO_LIMIT if most_pages is None else most_pages
    if most_bytes < 1 or most_pages < 1:
        raise InvalidArgument(f"most_bytes is {most_bytes} and most_pages {most_pages}; a sequence has at least 1.")
    return most_bytes, most_pages


def _in_disk_order(slots: PageSlots, wanted: Pages) -> Pages:
    places = slots.slot[wanted]
    pages = wanted[np.argsort(places, kind="stable")]  # a stable sort is linear where they are in order already
    again = pages[1:] == pages[:-1]
    return np.delete(pages, np.flatnonzero(again) + 1) if again.any() else pages


def _places(slots: PageSlots) -> tuple[Int32s, Int64s, Int64s, Int32s]:
    table = slots.table
    return table.file, table.offset, table.nbytes, slots.slot
