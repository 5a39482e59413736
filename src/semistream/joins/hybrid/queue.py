"""The queue of HYBRIDJOIN: stream tuples in their order of arrival, found by page of R, that leave from anywhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.hybrid.kernels import GONE, HOPELESS, MATCHED, first_live
from semistream.joins.hybrid.page_chains import PageChains, PageNeeds, PageSpan
from semistream.joins.parts.intake import Admitted
from semistream.joins.parts.packets import Packet, StreamPackets
from semistream.kernels.array_types import Bools, Int64s
from semistream.relation.format.row_sizes import carried_sizes

_CHUNK_BYTES = 6 * 8  # of a tuple in a chunk: it and its pages, which are through, and its place while these leave
_MOST_CHUNK = 1 << 16
_LEAST_CHUNK = 16
_NO_PAGES = PageSpan(0, 0)


class StreamQueue(StreamPackets):
    """Up to ``slots`` stream tuples: HYBRID's queue Q with random deletion, over its multi-hash table H (``chains``).

    Q is the order of positions. A tuple that leaves is taken out of its chain and flagged; what it held is given back
    by `compact`, which moves the others together. That is worth its while when a share of the positions is vacant, so
    it costs a constant time for each tuple that left.
    """

    def __init__(self, slots: int, needs: PageNeeds, budget: MemoryBudget, packet_bytes: int) -> None:
        super().__init__(budget, packet_bytes)
        self.slots = slots
        self.chunk_rows = self.chunk_rows_of(slots)
        self.chains = PageChains(slots, needs, self.chunk_rows)
        self.live = 0
        self._flags = np.empty(slots, np.uint8)
        self._oldest = 0  # no tuple before it is live
        self._end = 0

    @staticmethod
    def chunk_rows_of(slots: int) -> int:
        """Tuples that are admitted at once, at most, if there are so many slots."""
        return max(_LEAST_CHUNK, min(_MOST_CHUNK, slots // 8))

    @staticmethod
    def index_bytes(needs: PageNeeds, slots: int) -> int:
        """Bytes to find ``slots`` tuples, and to have a chunk of them at hand, besides what is kept by page."""
        return slots * (needs.tuple_bytes + 1) + StreamQueue.chunk_rows_of(slots) * _CHUNK_BYTES

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
        """Pages that the tuples here have yet to meet."""
        return int(np.count_nonzero(self.chains.waiting))

    def admit(self, tuples: Admitted) -> int:
        """Put tuples behind the others; gives how many of them some page may hold a partner of."""
        first, rows = self._end, tuples.sizes.size
        self._end += rows
        self._flags[first : self._end] = 0
        if tuples.ranges.possible is not None:
            self._flags[first : self._end][~tuples.ranges.possible] = HOPELESS
        needing = self.chains.admit(first, tuples.ranges, self._flags)
        self.live += rows
        self.packets.append(Packet(tuples.batch, tuples.sizes, first))
        self._merge_small_packets()
        return needing

    def next_pages(self, most: int, meeting: PageSpan | None = None) -> PageSpan | None:
        """Up to ``most`` pages that the tuple that came first has yet to meet, of those that wait for any.

        Tuples that have met all their pages with those that are ``meeting`` them are passed over.
        """
        self._oldest = first_live(self._flags, self._oldest, self._end)
        return self.chains.next_pages(self._flags, self._oldest, self._end, meeting or _NO_PAGES, most)

    def met(self, pages: PageSpan) -> None:
        """Say that all tuples here have met these pages."""
        self.chains.met(pages, self._end)

    def mark(self, tuples: Int64s) -> None:
        """Remember that these tuples met a partner."""
        self._flags[tuples] |= MATCHED

    def matched(self, tuples: Int64s) -> Bools:
        """Which of these tuples met a partner."""
        matched: Bools = (self._flags[tuples] & MATCHED) != 0
        return matched

    def remove(self, tuples: Int64s) -> None:
        """Let tuples that are in no chain any more leave. They can be taken from until the queue is compacted."""
        self._flags[tuples] |= GONE
        self.live -= tuples.size

    def compact(self) -> Iterator[Int64s]:
        """Move the tuples that are here together and drop the others; gives the sizes of those, some at a time.

        Positions change, and it must be followed to its end. Packets are rewritten one after the other, so that it
        needs the memory of two of them besides what the queue holds.
        """
        packets, self.packets = self.packets, deque()
        self.chains.renumber(self._flags, self._end)
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
        self.chains.relink(self._flags, self._end)

    def _move(self, tuples: Int64s) -> None:
        """Give tuples the next positions: these are before their own, or are them."""
        end = self._end + tuples.size
        self.chains.move(tuples, self._end)
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
