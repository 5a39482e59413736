"""Sliding window of MESHJOIN: stream tuples, the queue Q of their packets, and their sorted codes."""

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
    """Sorted ranges of codes that tuples ask for; the tuples are among ``first`` to ``end``."""

    ranges: SortedRanges
    first: int
    end: int


class StreamWindow(StreamPackets):
    """A window of up to ``slots`` stream tuples, found by the codes they ask for; they leave in order of arrival.

    MESH keeps a hash table H over the window. Here R's pages are clustered, so the codes of the window are kept sorted
    instead (as MESH 3.4 proposes for ranges), and each page meets only the tuples in its code range. The sorted codes
    form a few levels, each covering consecutive packets. A new packet is a level of its own, adjacent levels of similar
    size are merged, and entries of expired tuples are dropped when they are more than half of a level. A tuple's
    position is its number in the stream.
    """

    def __init__(self, slots: int, budget: MemoryBudget) -> None:
        super().__init__(budget)
        self.slots = slots
        self._levels: list[_Level] = []  # oldest tuples first
        self._matched = np.zeros(slots, np.bool_)  # by the tuple's number modulo slots
        self._first = 0
        self._end = 0

    @staticmethod
    def index_bytes(slots: int, *, single_codes: bool = True) -> int:
        """Return the bytes of the levels of ``slots`` tuples, doubled for merging, and of a flag for each tuple.

        With ``single_codes`` each tuple asks for one code, otherwise for a range.
        """
        return slots * (2 * SortedRanges.entry_bytes(single_codes) + 1)

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self.slots - self.held

    @property
    def held(self) -> int:
        """Number of occupied slots."""
        return self._end - self._first

    def resize(self, slots: int) -> None:
        """Change the number of slots, to no fewer than are occupied."""
        matched = np.zeros(slots, np.bool_)
        at = self._first
        while at < self._end:  # at most three pieces, as both arrays wrap
            old, new = at % self.slots, at % slots
            rows = min(self._end - at, self.slots - old, slots - new)
            matched[new : new + rows] = self._matched[old : old + rows]
            at += rows
        self.slots, self._matched = slots, matched

    def admit(self, tuples: Admitted, entered: int) -> int:
        """Append a packet of tuples; return the number of them that can match."""
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
        """Return the matched flags of the oldest packet's tuples."""
        packet = self.packets[0]
        return self._matched[np.arange(packet.first, packet.first + packet.rows) % self.slots]

    def expire(self) -> int:
        """Remove the oldest packet; return the number of its tuples that could match."""
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
        """Yield the pairs of a tuple and a row of a run with a code it asks for, in pieces that fill the arrays."""
        for level in self._levels:
            for tuples, pages, rows in level.ranges.matches(codes, position, page, row):
                if level.first < self._first:
                    live = tuples >= self._first
                    yield tuples[live], pages[live], rows[live]
                else:
                    yield tuples, pages, rows

    def mark(self, tuples: Int64s) -> None:
        """Flag these tuples as matched."""
        self._matched[tuples % self.slots] = True

    def merge_all(self) -> None:
        """Merge all levels into one, which pays before many runs are probed."""
        while len(self._levels) > 1:
            self._merge_newest()

    def _merge_levels(self) -> None:
        """Merge the newest levels until each is less than half of the one before.

        The number of levels is then logarithmic, and so is the number of times that an entry is moved.
        """
        while len(self._levels) > 1 and self._levels[-2].ranges.size <= 2 * self._levels[-1].ranges.size:
            self._merge_newest()

    def _merge_newest(self) -> None:
        right, left = self._levels.pop(), self._levels.pop()
        self._levels.append(_Level(left.ranges.merged(right.ranges), left.first, right.end))
