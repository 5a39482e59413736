"""The sliding window of MESHJOIN: stream tuples, the queue Q of packets they came in, and their codes in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.intake import Admitted
from semistream.joins.run_codes import RunCodes
from semistream.joins.sorted_ranges import SortedRanges
from semistream.kernels.types import Bools, Int32s, Int64s

_SMALL_PACKET = 4096


@dataclass
class Packet:
    """Stream tuples that entered the window together: MESH's ``w`` pointers in Q, and the tuples themselves.

    ``first`` numbers its first tuple, counted from the start of the stream; ``matchable`` of them can be found.
    """

    batch: pa.RecordBatch
    sizes: Int64s
    first: int
    entered: int
    matchable: int

    @property
    def rows(self) -> int:
        """Tuples in the packet."""
        return self.sizes.size


@dataclass
class _Level:
    """What tuples ask for, in order; the tuples are among those from ``first`` to ``end``."""

    ranges: SortedRanges
    first: int
    end: int


class StreamWindow:
    """Up to ``slots`` stream tuples, found by the codes they ask for, that leave in the order in which they came.

    MESH keeps a hash table H over the window. R's pages are clustered here, so the codes of the window are kept in
    order instead (as MESH 3.4 proposes for ranges), and each page meets only the tuples in its range of codes. The
    order is made of a few levels, each of which covers packets that came one after the other: a new packet is a level
    of its own, neighbours of similar size are merged, and entries of expired tuples are dropped when they are
    the larger part of a level. Positions are numbers of tuples in the stream.
    """

    def __init__(self, slots: int, budget: MemoryBudget) -> None:
        self.slots = slots
        self.packets: deque[Packet] = deque()
        self._budget = budget
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
        return self.slots - (self._end - self._first)

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

    def take(self, positions: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """Copies of some tuples."""
        order, parts = self._parts(positions)
        taken = [
            (packet.batch if columns is None else packet.batch.select(columns)).take(pa.array(rows))
            for packet, rows in parts
        ]
        if order is None:
            return list(taken[0].columns)
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return list(pa.concat_batches(taken).take(pa.array(back)).columns)

    def row_bytes(self, positions: Int64s) -> Int64s:
        """Bytes of some tuples."""
        order, parts = self._parts(positions)
        if order is None:
            packet, rows = parts[0]
            return packet.sizes[rows]
        sizes = np.empty(positions.size, np.int64)
        sizes[order] = np.concatenate([packet.sizes[rows] for packet, rows in parts])
        return sizes

    def _parts(self, tuples: Int64s) -> tuple[npt.NDArray[np.intp] | None, list[tuple[Packet, Int64s]]]:
        """Tuples as rows of packets, and the order in which they stand there (None: as they were given)."""
        if len(self.packets) == 1:
            return None, [(self.packets[0], tuples - self.packets[0].first)]
        firsts = np.array([packet.first for packet in self.packets], np.int64)
        numbers = np.searchsorted(firsts, tuples, "right") - 1
        order = np.argsort(numbers.astype(np.int16) if firsts.size < 2**15 else numbers, kind="stable")
        numbers, tuples = numbers[order], tuples[order]
        begins = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        packets = [self.packets[int(numbers[begin])] for begin in begins]
        return order, [
            (packet, tuples[begin:end] - packet.first)
            for packet, begin, end in zip(packets, begins, [*begins[1:], tuples.size], strict=True)
        ]

    def _merge_small_packets(self) -> None:
        """Join neighbours that came in the same iteration, smaller ones first: single rows become few packets."""
        while len(self.packets) > 1:
            last, before = self.packets[-1], self.packets[-2]
            if before.entered != last.entered or before.rows > min(2 * last.rows, _SMALL_PACKET):
                return
            both = int(before.sizes.sum() + last.sizes.sum())
            if both > self._budget.free:
                return
            with self._budget.charged("merged packets", both):
                batch = pa.concat_batches([before.batch, last.batch])
                sizes = np.concatenate([before.sizes, last.sizes])
                self.packets.pop()
                self.packets[-1] = Packet(batch, sizes, before.first, before.entered, before.matchable + last.matchable)

    def _merge_levels(self) -> None:
        """Merge the newest levels until each is less than half of the one before: there are few, and each entry is
        moved a logarithmic number of times.
        """
        while len(self._levels) > 1 and self._levels[-2].ranges.size <= 2 * self._levels[-1].ranges.size:
            right, left = self._levels.pop(), self._levels.pop()
            self._levels.append(_Level(left.ranges.merged(right.ranges), left.first, right.end))
