"""The sliding window of MESHJOIN: stream tuples in a ring, the hash table H over it, and the queue Q of packets."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.intake import Admitted
from semistream.kernels.types import Bools, Int32s, Int64s
from semistream.kernels.window import expire_tuples, insert_tuples, mark_slots, probe_pages, rebuild_filter
from semistream.relation import PageRun

_NO_MASK = np.empty(0, np.bool_)
_SMALL_PACKET = 4096
_FILTER_BITS_PER_TUPLE = 8


@dataclass
class Packet:
    """Stream tuples that entered the window together: MESH's ``w`` pointers in Q, and the tuples themselves."""

    batch: pa.RecordBatch
    sizes: Int64s
    first_slot: int
    entered: int

    @property
    def rows(self) -> int:
        """Tuples in the packet."""
        return self.sizes.size


class StreamWindow:
    """Up to ``slots`` stream tuples, found by key code, that leave in the order in which they came.

    Int32s are slots of the ring.
    """

    def __init__(self, slots: int, budget: MemoryBudget) -> None:
        buckets = _power_below(slots)
        self.slots = slots
        self._budget = budget
        self.used = 0
        self.packets: deque[Packet] = deque()
        self._first_slot = 0
        self._codes = np.zeros(slots, np.int64)
        self._links = np.zeros(slots, np.int32)
        self._matched = np.zeros(slots, np.uint8)
        self._heads = np.zeros(buckets, np.int32)
        self._tails = np.zeros(buckets, np.int32)
        self._bucket_shift = 64 - buckets.bit_length() + 1
        self._all_bits = np.zeros(max(buckets * _FILTER_BITS_PER_TUPLE // 64, 1), np.uint64)
        self._resize_filter()

    @staticmethod
    def index_bytes(slots: int) -> int:
        """Bytes of the ring, the table and its filter for a window of ``slots``; the tuples themselves come on top."""
        return slots * (8 + 4 + 1) + _power_below(slots) * (4 + 4 + _FILTER_BITS_PER_TUPLE // 8) + 8

    @property
    def free(self) -> int:
        """Slots that are empty."""
        return self.slots - self.used

    def admit(self, tuples: Admitted, entered: int) -> int:
        """Put a packet of tuples behind the others; gives how many entered the hash table."""
        if self.used == 0:
            self._first_slot = 0
        rows = tuples.codes.size
        first = (self._first_slot + self.used) % self.slots
        self._matched[np.arange(first, first + rows) % self.slots] = 0
        inserted = insert_tuples(
            tuples.codes,
            _NO_MASK if tuples.can_match is None else tuples.can_match,
            first,
            self._codes,
            self._heads,
            self._tails,
            self._links,
            self._bucket_shift,
            self._bits,
            self._filter_shift,
        )
        self.used += rows
        self.packets.append(Packet(tuples.batch, tuples.sizes, first, entered))
        self._merge_small_packets()
        if self.used * _FILTER_BITS_PER_TUPLE > 2 * self._bits.size * 64 and self._bits.size < self._all_bits.size:
            self._resize_filter()
        return int(inserted)

    def oldest_matched(self) -> Bools:
        """Which tuples of the oldest packet have met a partner."""
        packet = self.packets[0]
        slots = np.arange(packet.first_slot, packet.first_slot + packet.rows) % self.slots
        return self._matched[slots].view(np.bool_)

    def expire(self) -> int:
        """Remove the oldest packet; gives how many of its tuples were in the table."""
        packet = self.packets.popleft()
        removed = expire_tuples(
            packet.first_slot, packet.rows, self._codes, self._heads, self._links, self._bucket_shift
        )
        self.used -= packet.rows
        self._first_slot = (packet.first_slot + packet.rows) % self.slots
        self._expired += packet.rows
        if self._expired >= max(self.used, 1) or self.used == 0:
            self._resize_filter()
        return int(removed)

    def probe(self, run: PageRun, cursor: Int64s, slot: Int32s, page: Int32s, row: Int32s) -> int:
        """Fill in pairs of tuples and rows of the run with equal codes, from ``cursor`` on; see `probe_pages`."""
        found: int = probe_pages(
            run.words,
            run.code_starts,
            run.rows,
            self._codes,
            self._heads,
            self._links,
            self._bucket_shift,
            self._bits,
            self._filter_shift,
            cursor,
            slot,
            page,
            row,
        )
        return found

    def mark(self, slots: Int32s) -> None:
        """Remember that these tuples met a partner."""
        mark_slots(slots, self._matched)

    def take(self, positions: Int32s, columns: list[int] | None = None) -> list[pa.Array]:
        """Copies of the tuples in some slots."""
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

    def row_bytes(self, positions: Int32s) -> Int64s:
        """Bytes of the tuples in some slots."""
        order, parts = self._parts(positions)
        if order is None:
            packet, rows = parts[0]
            return packet.sizes[rows]
        sizes = np.empty(positions.size, np.int64)
        sizes[order] = np.concatenate([packet.sizes[rows] for packet, rows in parts])
        return sizes

    def _parts(self, slots: Int32s) -> tuple[npt.NDArray[np.intp] | None, list[tuple[Packet, Int32s]]]:
        """Slots as rows of packets, and the order in which they stand there (None: as they were given)."""
        if len(self.packets) == 1:
            return None, [(self.packets[0], (slots - self.packets[0].first_slot) % self.slots)]
        numbers = self._packet_of(slots)
        order = np.argsort(numbers, kind="stable")
        numbers, slots = numbers[order], slots[order]
        begins = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        packets = [self.packets[int(numbers[begin])] for begin in begins]
        return order, [
            (packet, (slots[begin:end] - packet.first_slot) % self.slots)
            for packet, begin, end in zip(packets, begins, [*begins[1:], slots.size], strict=True)
        ]

    def _packet_of(self, slots: Int32s) -> npt.NDArray[np.int16]:
        firsts = np.array([packet.first_slot for packet in self.packets], np.int64)
        ages = (firsts - self._first_slot) % self.slots
        numbers = np.searchsorted(ages, (slots - self._first_slot) % self.slots, "right") - 1
        return numbers.astype(np.int16 if len(self.packets) < 2**15 else np.int32)

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
                self.packets[-1] = Packet(batch, sizes, before.first_slot, before.entered)

    def _resize_filter(self) -> None:
        """Make the filter as large as the tuples it holds need, and forget those that have expired."""
        words = min(max(_power_below(self.used * _FILTER_BITS_PER_TUPLE * 2) // 64, 1), self._all_bits.size)
        self._bits = self._all_bits[:words]
        self._filter_shift = 64 - (words * 64).bit_length() + 1
        self._expired = 0
        rebuild_filter(self._first_slot, self.used, self._codes, self._links, self._bits, self._filter_shift)


def _power_below(number: int) -> int:
    """The largest power of two that is not larger, at least 1."""
    return 1 << max(number.bit_length() - 1, 0)
