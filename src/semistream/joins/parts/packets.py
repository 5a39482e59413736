"""Stream tuples in memory, in the packets in which they came."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.kernels.array_types import Int64s
from semistream.relation.format.row_sizes import carried_sizes

_SMALL_PACKET = 4096


@dataclass
class Packet:
    """Stream tuples that came together: MESH's ``w`` pointers in Q, and the tuples themselves.

    ``first`` is the position of the first tuple. In operators whose packets leave as a whole, ``entered`` is the time
    of entry, and ``matchable`` the number of tuples that can match.
    """

    batch: pa.RecordBatch
    sizes: Int64s
    first: int
    entered: int = 0
    matchable: int = 0

    @property
    def rows(self) -> int:
        """Number of tuples in the packet."""
        return self.sizes.size


class StreamPackets:
    """A queue of packets; a tuple is identified by its position, which ascends from packet to packet.

    Small packets are merged, up to ``packet_bytes``.
    """

    def __init__(self, budget: MemoryBudget, packet_bytes: int = 1 << 62) -> None:
        self.packets: deque[Packet] = deque()
        self.packet_bytes = packet_bytes
        self._budget = budget

    def take(self, positions: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """Copy the given columns of some tuples, by default all columns."""
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
        """Return the bytes of each of some tuples."""
        order, parts = self._parts(positions)
        if order is None:
            packet, rows = parts[0]
            return packet.sizes[rows]
        sizes = np.empty(positions.size, np.int64)
        sizes[order] = np.concatenate([packet.sizes[rows] for packet, rows in parts])
        return sizes

    def _parts(self, tuples: Int64s) -> tuple[npt.NDArray[np.intp] | None, list[tuple[Packet, Int64s]]]:
        """Group tuples by packet; return the sort order (None: unchanged), and each packet with its rows."""
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
        """Merge the last packets while they entered together and are small, so that single rows make few packets."""
        while len(self.packets) > 1:
            last, before = self.packets[-1], self.packets[-2]
            if before.entered != last.entered or before.rows > min(2 * last.rows, _SMALL_PACKET):
                return
            both = int(before.sizes.sum() + last.sizes.sum())
            if both > min(self._budget.free, self.packet_bytes):
                return
            with self._budget.charged("merged packets", both):
                batch = pa.concat_batches([before.batch, last.batch])
                sizes = carried_sizes(batch, [before.sizes, last.sizes])
                self.packets.pop()
                self.packets[-1] = Packet(batch, sizes, before.first, before.entered, before.matchable + last.matchable)
