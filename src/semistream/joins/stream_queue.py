"""The queue of HYBRIDJOIN: stream tuples in their order of arrival, found by page of R, that leave from anywhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.intake import Admitted
from semistream.joins.row_sizes import carried_sizes
from semistream.joins.stream_packets import Packet, StreamPackets
from semistream.kernels.buckets import GONE, HOPELESS, MATCHED, first_outside, link_tuples, list_tuples, unlink_tuples
from semistream.kernels.types import Bools, Int64s
from semistream.relation.page_table import PageTable

_TUPLE_BYTES = 8 + 4 + 1  # a tuple's code, the next one of its bucket, its flags
_CHUNK_BYTES = 6 * 8  # of a tuple in a chunk: it and its code, twice while they are ordered, its place, its index
_MOST_CHUNK = 1 << 16
_LEAST_CHUNK = 16


class StreamQueue(StreamPackets):
    """Up to ``slots`` stream tuples: HYBRID's queue Q with random deletion, and its multi-hash table H.

    H has a bucket for the codes of each page of R, so that the tuples a page can serve are had by walking their chain,
    and no tuple that waits for another page is touched. Q is the order of positions. A tuple that leaves is taken out
    of its chain and flagged; what it held is given back by `compact`, which moves the others together. That is worth
    its while when a share of the positions is vacant, so it costs a constant time for each tuple that left.

    Tuples come out in chunks of bounded size, each valid until the next is asked for.
    """

    def __init__(self, slots: int, table: PageTable, budget: MemoryBudget, packet_bytes: int) -> None:
        super().__init__(budget, packet_bytes)
        self.slots = slots
        self.chunk_rows = self._chunk_rows(slots)
        self.waiting = np.zeros(2 * len(table) + 1, np.int32)  # tuples by bucket, without those that are being served
        self.live = 0
        self._table = table
        self._head = np.full(2 * len(table) + 1, -1, np.int32)
        self._codes = np.empty(slots, np.int64)
        self._following = np.empty(slots, np.int32)
        self._flags = np.empty(slots, np.uint8)
        self._chunk = np.empty(self.chunk_rows, np.int64)
        self._oldest = 0  # no tuple before it is live
        self._end = 0

    @staticmethod
    def _chunk_rows(slots: int) -> int:
        return max(_LEAST_CHUNK, min(_MOST_CHUNK, slots // 8))

    @staticmethod
    def index_bytes(slots: int) -> int:
        """Bytes to find ``slots`` tuples, and to have a chunk of them at hand."""
        return slots * _TUPLE_BYTES + StreamQueue._chunk_rows(slots) * _CHUNK_BYTES

    @staticmethod
    def bucket_bytes(pages: int) -> int:
        """Bytes of the chains' heads and counts for so many pages."""
        return (2 * pages + 1) * (4 + 4)

    @property
    def free(self) -> int:
        """Positions that can be taken before the queue is compacted."""
        return self.slots - self._end

    @property
    def vacant_share(self) -> float:
        """Which share of the positions in use belongs to tuples that have left."""
        return 1 - self.live / self._end if self._end else 0.0

    @property
    def pages_wanted(self) -> int:
        """Pages that the tuples here need; those of several buckets count for each."""
        buckets = np.flatnonzero(self.waiting[:-1])
        spanning = buckets[buckets % 2 == 1] // 2
        ends = np.searchsorted(self._table.first_code, self._table.last_code[spanning], "right")
        return int(buckets.size - spanning.size + (ends - spanning).sum())

    def admit(self, tuples: Admitted) -> int:
        """Put tuples behind the others; gives how many of them some page may hold a partner of."""
        first, rows = self._end, tuples.sizes.size
        self._end += rows
        self._codes[first : self._end] = tuples.ranges.low
        self._flags[first : self._end] = 0
        if tuples.ranges.possible is not None:
            self._flags[first : self._end][~tuples.ranges.possible] = HOPELESS
        linked = self._link(first)
        self.live += rows
        self.packets.append(Packet(tuples.batch, tuples.sizes, first))
        self._merge_small_packets()
        return linked

    def _link(self, begin: int) -> int:
        first_code, last_code = self._table.first_code, self._table.last_code
        linked: int = link_tuples(
            first_code, last_code, self._codes, self._flags, begin, self._end, self._head, self._following, self.waiting
        )
        return linked

    def oldest_code(self, besides: tuple[int, int] | None = None) -> int | None:
        """The code of the tuple that came first, of those with no code in ``besides`` (its least and its greatest)."""
        self._oldest = first_outside(self._codes, self._flags, self._oldest, self._end, 1, 0)
        low, high = besides or (1, 0)
        found = first_outside(self._codes, self._flags, self._oldest, self._end, low, high)
        return int(self._codes[found]) if found < self._end else None

    def serve(self, begin: int, end: int) -> None:
        """Say that the tuples of these buckets are going to leave: they no longer count as waiting."""
        self.waiting[begin:end] = 0

    def staying(self, bucket: int) -> Iterator[tuple[Int64s, Int64s]]:
        """The tuples of a bucket in ascending order of codes, and the codes."""
        following = int(self._head[bucket])
        while following >= 0:
            found, following = list_tuples(self._following, following, self._chunk)
            yield self._ordered(self._chunk[:found])

    def leaving(self, begin: int, end: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Like `staying`, and takes them out of the buckets from ``begin`` to ``end``; each chunk goes to `remove`."""
        while found := unlink_tuples(self._head, self._following, begin, end, self._chunk):
            yield self._ordered(self._chunk[:found])

    def _ordered(self, tuples: Int64s) -> tuple[Int64s, Int64s]:
        codes = self._codes[tuples]
        order = np.argsort(codes)
        return tuples[order], codes[order]

    def mark(self, tuples: Int64s) -> None:
        """Remember that these tuples met a partner."""
        self._flags[tuples] |= MATCHED

    def matched(self, tuples: Int64s) -> Bools:
        """Which of these tuples met a partner."""
        matched: Bools = (self._flags[tuples] & MATCHED) != 0
        return matched

    def remove(self, tuples: Int64s) -> None:
        """Let tuples that are in no bucket any more leave. They can be taken from until the queue is compacted."""
        self._flags[tuples] |= GONE
        self.live -= tuples.size

    def compact(self) -> Iterator[Int64s]:
        """Move the tuples that are here together and drop the others; gives the sizes of those, some at a time.

        Positions change, and it must be followed to its end. Packets are rewritten one after the other, so that it
        needs the memory of two of them besides what the queue holds.
        """
        packets, self.packets = self.packets, deque()
        self._oldest = self._end = 0
        group: list[tuple[Packet, Int64s]] = []
        rows = nbytes = 0
        while packets:
            flags = self._flags[packets[0].first : packets[0].first + packets[0].rows]
            kept = np.flatnonzero(flags & GONE == 0)
            kept_bytes = int(packets[0].sizes[kept].sum())
            if group and (rows + kept.size > self.chunk_rows or nbytes + kept_bytes > self.packet_bytes):
                yield self._rewrite(group, nbytes)
                rows = nbytes = 0
            rows, nbytes = rows + kept.size, nbytes + kept_bytes
            self._move(packets[0].first + kept)
            group.append((packets.popleft(), kept))
        if group:
            yield self._rewrite(group, nbytes)
        self._head.fill(-1)
        self.waiting.fill(0)
        self._link(0)

    def _move(self, tuples: Int64s) -> None:
        """Give tuples the next positions: these are before their own, or are them."""
        end = self._end + tuples.size
        self._codes[self._end : end] = self._codes[tuples]
        self._flags[self._end : end] = self._flags[tuples]
        self._end = end

    def _rewrite(self, group: list[tuple[Packet, Int64s]], nbytes: int) -> Int64s:
        """Make one packet of the rows that are kept of some; gives the sizes of the other rows."""
        first = self.packets[-1].first + self.packets[-1].rows if self.packets else 0
        dropped = np.concatenate([np.delete(packet.sizes, kept) for packet, kept in group])
        if len(group) == 1 and dropped.size == 0:
            self.packets.append(replace(group[0][0], first=first))
        elif any(kept.size for _, kept in group):
            with self._budget.charged("moved packets", 2 * nbytes):
                batch = pa.concat_batches([packet.batch.take(pa.array(kept)) for packet, kept in group])
                sizes = carried_sizes(batch, [packet.sizes[kept] for packet, kept in group])
                self.packets.append(Packet(batch, sizes, first))
        group.clear()
        return dropped
