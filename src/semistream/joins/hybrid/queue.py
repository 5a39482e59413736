"""StreamQueue of HYBRIDJOIN: stream tuples in order of arrival, found by page of R, that leave from any position."""

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

_CHUNK_BYTES = 6 * 8  # per tuple of a chunk: its stretch, the finished tuples, and their place while they leave
_MOST_CHUNK = 1 << 16
_LEAST_CHUNK = 16
_NO_PAGES = PageSpan(0, 0)


class StreamQueue(StreamPackets):
    """Up to ``slots`` stream tuples: HYBRID's queue Q with random deletion, over its multi-hash table H (``chains``).

    Q is the order of positions. A tuple that leaves is removed from its chain and flagged; `compact` moves the others
    together and releases its memory. If it is called only when a fixed share of the positions is vacant, it costs
    constant time per tuple that left.
    """

    def __init__(self, slots: int, needs: PageNeeds, budget: MemoryBudget, packet_bytes: int) -> None:
        super().__init__(budget, packet_bytes)
        self.slots = slots
        self.chunk_rows = self.chunk_rows_of(slots)
        self.chains = PageChains(slots, needs, self.chunk_rows)
        self.live = 0
        self._flags = np.empty(slots, np.uint8)
        self._oldest = 0  # no tuple before this position is live
        self._end = 0

    @staticmethod
    def chunk_rows_of(slots: int) -> int:
        """Return the most tuples admitted at once with ``slots`` slots."""
        return max(_LEAST_CHUNK, min(_MOST_CHUNK, slots // 8))

    @staticmethod
    def index_bytes(needs: PageNeeds, slots: int) -> int:
        """Return the bytes of the index of ``slots`` tuples and of a chunk of them, without the per-page arrays."""
        return slots * (needs.tuple_bytes + 1) + StreamQueue.chunk_rows_of(slots) * _CHUNK_BYTES

    @property
    def free(self) -> int:
        """Free positions before the queue must be compacted."""
        return self.slots - self._end

    @property
    def vacant_share(self) -> float:
        """Share of the positions in use that belongs to tuples that have left."""
        return 1 - self.live / self._end if self._end else 0.0

    @property
    def pages_wanted(self) -> int:
        """Number of pages that tuples in the queue still have to meet."""
        return int(np.count_nonzero(self.chains.waiting))

    def admit(self, tuples: Admitted) -> int:
        """Append tuples; return the number of them that need a page."""
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
        """Return up to ``most`` adjacent pages that the oldest waiting tuple still has to meet; None if there is none.

        Tuples that need no page beyond those they are ``meeting`` now are skipped.
        """
        self._oldest = first_live(self._flags, self._oldest, self._end)
        return self.chains.next_pages(self._flags, self._oldest, self._end, meeting or _NO_PAGES, most)

    def met(self, pages: PageSpan) -> None:
        """Record that all tuples in the queue have met these pages."""
        self.chains.met(pages, self._end)

    def mark(self, tuples: Int64s) -> None:
        """Flag these tuples as matched."""
        self._flags[tuples] |= MATCHED

    def matched(self, tuples: Int64s) -> Bools:
        """Return the matched flags of these tuples."""
        matched: Bools = (self._flags[tuples] & MATCHED) != 0
        return matched

    def remove(self, tuples: Int64s) -> None:
        """Remove tuples that are in no chain any more; `take` can read them until the queue is compacted."""
        self._flags[tuples] |= GONE
        self.live -= tuples.size

    def compact(self) -> Iterator[Int64s]:
        """Move the live tuples together and drop the others, yielding the sizes of the dropped ones piece by piece.

        Positions change, and the iterator must be consumed to its end. Packets are rewritten one after the other, so
        this needs the memory of two packets besides that of the queue.
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
        """Move tuples to the next positions, none of them after the old ones."""
        end = self._end + tuples.size
        self.chains.move(tuples, self._end)
        self._flags[self._end : end] = self._flags[tuples]
        self._end = end

    def _rewrite(self, group: list[tuple[Packet, Int64s]], nbytes: int) -> Int64s:
        """Merge the kept rows of some packets into one packet; return the sizes of the dropped rows."""
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
