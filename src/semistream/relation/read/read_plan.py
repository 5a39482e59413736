"""The read plan of SSIJ IV-D: groups wanted pages into sequential reads where that is cheaper than separate seeks.

=====================  =============================================================================================
SSIJ                   here
=====================  =============================================================================================
P_u                    ``wanted``
S, T                   `DiskCosts`: T per byte, since pages differ in size, or per page; a sequence costs S plus the
                       transfer of everything from its first page to its last
maxScan                ``most_bytes`` of a sequence, and ``most_pages`` if given
maxDist                follows from the costs: an optimal plan reads across unwanted pages if and only if their transfer
                       takes less than a seek, as far as the limits allow
distance               difference of `PageSlots`, the positions of pages on disk, counted in pages
=====================  =============================================================================================
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
_BYTES_BUILDING = 20  # the disk order, and the memory to sort it


@dataclass(frozen=True)
class PageSlots:
    """The slot of each page: slots are numbered in disk order, file after file.

    Two pages of one file are ``slot[b] - slot[a]`` apart: the distance of SSIJ IV-D. A file may still hold pages that
    an update has replaced. The page table does not list them, but a read across them transfers them. Such a gap takes
    as many slots as pages of the file's mean size would fit in it, and at least one.
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
        """Return the peak bytes for numbering the slots of ``pages`` pages; 4 bytes per page remain in use."""
        return pages * (_BYTES_KEPT + _BYTES_BUILDING)


Pages = npt.NDArray[np.intp]

_NO_LIMIT = 1 << 40
_BYTES_PER_PAGE = 80
_LEAST_FOLLOWS = 1e-3  # minimum cost of a request as a share of a seek, so that fewer requests win ties


class PageSequence(NamedTuple):
    """The wanted ``pages`` read by one request, and the number of all pages from the first of them to the last.

    ``spans`` are the (offset, bytes) of the sequence in each column group, if already computed.
    """

    pages: Pages
    span_pages: int
    spans: Sequence[tuple[int, int]] | None = None


@dataclass(frozen=True)
class ReadPlan:
    """Disjoint sequences in disk order, which begin and end with a wanted page and cover each wanted page once.

    ``pages`` are the wanted pages in disk order; sequence ``i`` has those from ``cuts[i]`` to ``cuts[i + 1]``.
    ``span_bytes`` and ``span_pages`` are transferred by each sequence. ``seeks`` counts the sequences that do not start
    where the previous one ended. ``cost_s`` is the expected duration of the whole plan in seconds.
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
        """Yield the sequences with their spans in these column groups."""
        first, last = self.pages[self.cuts[:-1]], self.pages[self.cuts[1:] - 1]
        spans = []
        for segment in segments:
            begin = segment.offset[first]
            nbytes = segment.offset[last] + segment.nbytes[last] - begin
            spans.append(zip(begin.tolist(), nbytes.tolist(), strict=True))
        return (sequence._replace(spans=spans) for sequence, *spans in zip(self, *spans, strict=True))


def plan_memory_bytes(wanted: int) -> int:
    """Return the peak bytes for planning reads of ``wanted`` pages, including the plan."""
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
    """Compute the cheapest plan (SSIJ IV-D), in time linear in ``wanted`` once these are in disk order.

    ``wanted`` are page numbers in any order; duplicates are read once. No sequence spans more than ``most_bytes`` and
    ``most_pages``, unless a single page does. SSIJ's own program takes O(|P_u| * maxScan).

    In SSIJ every sequence costs a seek, even one adjacent to its predecessor that was cut off only by the limits. With
    ``goes_on`` the sequences are read one after the other, and an adjacent one costs less (`DiskCosts.follows`). The
    plan then cuts long sequences between adjacent wanted pages rather than at a gap, where the head would have to seek.
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
    """Compute the plan of Seeger et al. ([17] in SSIJ IV-D): from the first page on, sequences as long as possible.

    No sequence has more than ``most_unwanted`` (k) unwanted pages in a row. The plan is never cheaper than that of
    `optimal_plan`, and there is no bound on its extra cost.
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
        raise InvalidArgument(f"most_bytes is {most_bytes} and most_pages is {most_pages}; give at least 1 for each.")
    return most_bytes, most_pages


def _in_disk_order(slots: PageSlots, wanted: Pages) -> Pages:
    places = slots.slot[wanted]
    pages = wanted[np.argsort(places, kind="stable")]  # a stable sort is linear if they are already in order
    again = pages[1:] == pages[:-1]
    return np.delete(pages, np.flatnonzero(again) + 1) if again.any() else pages


def _places(slots: PageSlots) -> tuple[Int32s, Int64s, Int64s, Int32s]:
    table = slots.table
    return table.file, table.offset, table.nbytes, slots.slot
