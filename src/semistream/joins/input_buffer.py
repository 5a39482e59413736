"""The input buffer of SSIJ: stream tuples that came and were not looked up yet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.intake import Admitted
from semistream.joins.row_sizes import carried_sizes
from semistream.joins.stream_packets import Packet, StreamPackets
from semistream.kernels.merge import match_pages
from semistream.kernels.types import Bools, Int32s, Int64s
from semistream.relation import PageRun


class InputBuffer(StreamPackets):
    """Up to ``slots`` tuples (IB of SSIJ IV-A). An online phase takes all of them; positions count from zero again."""

    def __init__(self, slots: int, budget: MemoryBudget, packet_bytes: int) -> None:
        super().__init__(budget, packet_bytes)
        self.slots = slots
        self.rows = 0
        self._codes = np.empty(slots, np.int64)
        self._can_match = np.empty(slots, np.bool_)
        self._matched = np.empty(slots, np.bool_)

    @staticmethod
    def index_bytes(slots: int) -> int:
        """Bytes of the arrays for ``slots`` tuples, and of those that an online phase makes of them."""
        return slots * (_STORED_BYTES + _PHASE_BYTES)

    def append(self, tuples: Admitted) -> None:
        """Put tuples behind the others."""
        begin, end = self.rows, self.rows + tuples.sizes.size
        self._codes[begin:end] = tuples.codes
        self._can_match[begin:end] = True if tuples.can_match is None else tuples.can_match
        self._matched[begin:end] = False
        self.packets.append(Packet(tuples.batch, tuples.sizes, begin))
        self.rows = end
        self._merge_small_packets()

    def in_order(self) -> tuple[Int64s, Int64s]:
        """The codes of all tuples that can match, ascending, and the tuples' positions (Algorithm 1, line 1)."""
        positions = np.flatnonzero(self._can_match[: self.rows])
        codes = self._codes[positions]
        order = np.argsort(codes, kind="stable")
        return codes[order], positions[order]

    def probe(
        self, run: PageRun, codes: Int64s, tuples: Int64s, position: Int64s, page: Int32s, row: Int32s
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Pairs of one of the tuples, given in the order of their codes, and a row of the run with an equal code.

        They come as many at a time as the arrays given can hold.
        """
        cursor = np.array([0, -1, -1], np.int64)
        while cursor[0] < run.pages.size:
            found = match_pages(run.words, run.code_starts, run.rows, codes, cursor, position, page, row)
            yield tuples[position[:found]], page[:found], row[:found]

    def mark(self, positions: Int64s) -> None:
        """Remember that these tuples met a partner."""
        self._matched[positions] = True

    def matched(self, positions: Int64s) -> Bools:
        """Which of these tuples met a partner."""
        return self._matched[positions]

    def drain(self, stay: Bools) -> Iterator[tuple[Admitted | None, Int64s]]:
        """Empty the buffer, packet by packet: gives the tuples to ``stay`` in memory, if any, and the others' sizes.

        It takes the memory of one packet more, in which the tuples that stay stand alone.
        """
        while self.packets:
            packet = self.packets.popleft()
            end = packet.first + packet.rows
            chosen = stay[packet.first : end]
            rows = np.flatnonzero(chosen)
            if rows.size == 0:
                yield None, packet.sizes
                continue
            codes = self._codes[packet.first : end][rows]
            if rows.size == packet.rows:
                yield Admitted(packet.batch, packet.sizes, codes, None), packet.sizes[:0]
                continue
            sizes = packet.sizes[rows]
            with self._budget.charged("moved tuples", int(sizes.sum())):
                batch = packet.batch.take(pa.array(rows))
                gone = packet.sizes[~chosen]
                del packet
                yield Admitted(batch, carried_sizes(batch, [sizes]), codes, None), gone
        self.rows = 0


_STORED_BYTES = 8 + 1 + 1  # a tuple's code and flags
_PHASE_BYTES = 72  # its code, position and outcome, in order, those that are joined at once, and those that leave
