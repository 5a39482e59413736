"""Input buffer of SSIJ: stream tuples not looked up yet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.parts.intake import Admitted
from semistream.joins.parts.packets import Packet, StreamPackets
from semistream.joins.parts.sorted_codes import SortedRanges
from semistream.kernels.array_types import Bools, Int64s
from semistream.keys import CodeRanges
from semistream.relation.format.row_sizes import carried_sizes

_CODE_BYTES = 8 + 1 + 1 + 72  # a tuple's code and two flags; in an online phase, sorted codes twice and outcomes
_RANGE_BYTES = 2 * 8 + 1 + 1 + 136  # the same for a range


class InputBuffer(StreamPackets):
    """A buffer of up to ``slots`` tuples (IB of SSIJ IV-A), which an online phase empties; then positions restart at 0.

    With ``single_codes`` each tuple asks for one code, otherwise for a range.
    """

    def __init__(self, slots: int, budget: MemoryBudget, packet_bytes: int, *, single_codes: bool) -> None:
        super().__init__(budget, packet_bytes)
        self.slots = slots
        self.rows = 0
        self._low = np.empty(slots, np.int64)
        self._high = None if single_codes else np.empty(slots, np.int64)
        self._possible = np.empty(slots, np.bool_)
        self._matched = np.empty(slots, np.bool_)

    @staticmethod
    def index_bytes(slots: int, *, single_codes: bool) -> int:
        """Return the bytes of the arrays for ``slots`` tuples, including those that an online phase allocates."""
        return slots * (_CODE_BYTES if single_codes else _RANGE_BYTES)

    def append(self, tuples: Admitted) -> None:
        """Append tuples."""
        some = slice(self.rows, self.rows + tuples.sizes.size)
        self._low[some] = tuples.ranges.low
        if self._high is not None:
            self._high[some] = tuples.ranges.last
        self._possible[some] = True if tuples.ranges.possible is None else tuples.ranges.possible
        self._matched[some] = False
        self.packets.append(Packet(tuples.batch, tuples.sizes, self.rows))
        self.rows = some.stop
        self._merge_small_packets()

    def in_order(self) -> SortedRanges:
        """Return the codes that matchable tuples ask for, sorted (Algorithm 1, line 1)."""
        ranges = self._ranges(slice(0, self.rows), self._possible[: self.rows])
        return SortedRanges.of(ranges, np.arange(self.rows))

    def _ranges(self, some: slice | Int64s, possible: Bools | None) -> CodeRanges:
        return CodeRanges(self._low[some], None if self._high is None else self._high[some], possible)

    def mark(self, positions: Int64s) -> None:
        """Flag these tuples as matched."""
        self._matched[positions] = True

    def matched(self, positions: Int64s) -> Bools:
        """Return the matched flags of these tuples."""
        return self._matched[positions]

    def drain(self, stay: Bools) -> Iterator[tuple[Admitted | None, Int64s]]:
        """Empty the buffer packet by packet; yield the tuples that ``stay`` in memory, or None, and the others' sizes.

        This needs the memory of one more packet, for a copy of the tuples that stay.
        """
        while self.packets:
            packet = self.packets.popleft()
            chosen = stay[packet.first : packet.first + packet.rows]
            rows = np.flatnonzero(chosen)
            if rows.size == 0:
                yield None, packet.sizes
                continue
            ranges = self._ranges(packet.first + rows, None)
            if rows.size == packet.rows:
                yield Admitted(packet.batch, packet.sizes, ranges), packet.sizes[:0]
                continue
            sizes = packet.sizes[rows]
            with self._budget.charged("moved tuples", int(sizes.sum())):
                batch = packet.batch.take(pa.array(rows))
                gone = packet.sizes[~chosen]
                del packet
            yield Admitted(batch, carried_sizes(batch, [sizes]), ranges), gone
        self.rows = 0
