"""The sliding window of MESHJOIN: stream tuples, the queue Q of packets they came in, and their codes in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from semistream.budget import MemoryBudget
from semistream.joins.condition.run_codes import RunCodes
from semistream.joins.parts.intake import Admitted
from semistream.joins.parts.packets import Packet, StreamPackets
from semistream.joins.parts.sorted_codes import SortedRanges
from semistream.kernels.array_types import Bools, Int32s, Int64s


@dataclass
class _Level:
    """What tuples ask for, in order; the tuples are among those from ``first`` to ``end``."""

    ranges: SortedRanges
    first: int
    end: int


class StreamWindow(StreamPackets):
    """Up to ``slots`` stream tuples, found by the codes they ask for, that leave in the order in which they came.

    MESH keeps a hash table H over the window. R's pages are clustered here, so the codes of the window are kept in
    order instead (as MESH 3.4 proposes for ranges), and each page meets only the tuples in its range of codes. The
    order is made of a few levels, each of which covers packets that came one after the other: a new packet is a level
    of its own, neighbours of similar size are merged, and entries of expired tuples are dropped when they are
    the larger part of a level. Positions are numbers of tuples in the stream.
    """

    def __init__(self, slots: int, budget: MemoryBudget) -> None:
        super().__init__(budget)
        self.slots = slots
        self._levels: list[_Level] = []  # the oldest tuples first
        self._matched = np.zeros(slots, np.bool_)  # by the tuple's number, modulo the slots
        self._first = 0
        self._end = 0

    @staticmethod
    def index_bytes(slots: int, *, single_codes: bool = True) -> int:
        """Bytes of the levels of ``slots`` tuples, twice while they are merged, and of a flag for each.

        ``single_codes`` says whether each tuple asks for one code, and not for a range.
        """
        return slots * (2 * SortedRanges.entry_bytes(single_codes) + 1)

    @property
    def free(self) -> int:
        """Slots that are empty."""
        return self.slots - self.held

    @property
    def held(self) -> int:
        """Slots that are taken."""
        return self._end - self._first

    def resize(self, slots: int) -> None:
        """Have ``slots`` from now on, no fewer than are taken."""
        matched = np.zeros(slots, np.bool_)
        at = self._first
        while at < self._end:  # piece by piece, as both arrays wrap: three pieces at most
            old, new = at % self.slots, at % slots
            rows = min(self._end - at, self.slots - old, slots - new)
            matched[new : new + rows] = self._matched[old : old + rows]
            at += rows
        self.slots, self._matched = slots, matched

    def admit(self, tuples: Admitted, entered: int) -> int:
        """Put a packet of tuples behind the others; gives how many of them can be found."""
        first, rows = self._end, tuples.sizes.size
        numbers = np.arange(first, first + rows)
        self._matched[numbers % self.slots] = False
        ranges = SortedRanges.of(tuples.ranges, numbers)
        self._end += rows
        self._levels.append(_Level(ranges, first, self._end))
        self.packets.append(Packet(tuples.batch, tuples.sizes, first, entered, ranges.size))
        self._merge_small_packets()
        self._merge_levels()
        return ranges.size

    def oldest_matched(self) -> Bools:
        """Which tuples of the oldest packet have met a partner."""
        packet = self.packets[0]
        return self._matched[np.arange(packet.first, packet.first + packet.rows) % self.slots]

    def expire(self) -> int:
        """Remove the oldest packet; gives how many of its tuples could be found."""
        packet = self.packets.popleft()
        self._first = packet.first + packet.rows
        while self._levels and self._levels[0].end <= self._first:
            self._levels.pop(0)
        if self._levels:
            oldest = self._levels[0]
            if 2 * (self._first - oldest.first) > oldest.end - oldest.first:
                live = oldest.ranges.kept(oldest.ranges.tuples >= self._first)
                self._levels[0] = _Level(live, self._first, oldest.end)
        return packet.matchable

    def probe(
        self, codes: RunCodes, position: Int64s, page: Int32s, row: Int32s
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Pairs of a tuple and a row of a run whose code it asks for, as many at a time as the arrays can hold."""
        for level in self._levels:
            for tuples, pages, rows in level.ranges.matches(codes, position, page, row):
                if level.first < self._first:
                    live = tuples >= self._first
                    yield tuples[live], pages[live], rows[live]
                else:
                    yield tuples, pages, rows

    def mark(self, tuples: Int64s) -> None:
        """Remember that these tuples met a partner."""
        self._matched[tuples % self.slots] = True

    def merge_all(self) -> None:
        """Make one level of all: worth its while before many runs are probed."""
        while len(self._levels) > 1:
            self._merge_newest()

    def _merge_levels(self) -> None:
        """Merge the newest levels until each is less than half of the one before: there are few, and each entry is
        moved a logarithmic number of times.
        """
        while len(self._levels) > 1 and self._levels[-2].ranges.size <= 2 * self._levels[-1].ranges.size:
            self._merge_newest()

    def _merge_newest(self) -> None:
        right, left = self._levels.pop(), self._levels.pop()
        self._levels.append(_Level(left.ranges.merged(right.ranges), left.first, right.end))
