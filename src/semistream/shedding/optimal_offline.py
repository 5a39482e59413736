"""OptimalOffline: the least loss that any schedule has, for a stream that is known to its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistream.budget import MemoryBudget
from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bools, Int64s
from semistream.shedding.kernels import follow_schedule, solve_offline


@dataclass(frozen=True)
class OfflineSchedule:
    """Which tuples are kept, and when the join gets them.

    Parameters
    ----------
    loss
        Results that are lost.
    kept
        For each tuple whether it is kept.
    requests, transfers
        For each packet of tuples when the join asked for it and when it got it: before the tuple of that number came.
        What is in the buffer when the stream ends is handed over after it and not among them.
    """

    loss: int
    kept: Bools
    requests: Int64s
    transfers: Int64s

    @property
    def stalls(self) -> Int64s:
        """How long the join waited for each packet, in tuples that came meanwhile."""
        return self.transfers - self.requests


class OptimalOffline:
    """OPTOFFLINESHED: the benchmark of strategies that do not know the future.

    One tuple comes at a time. Kept ones wait in a buffer of ``w``; the join takes a full buffer when it has asked for
    one, is busy for ``c_loop`` tuples, and asks again. If the buffer is not full then, the join waits until it is: the
    optimum uses that to leave room for tuples that are worth more.

    Guarantee: no schedule of these rules loses fewer results. The paper's recurrence, with the ``+ f_R(i)`` that line
    11 of its pseudo-code (Fig. 9) drops, asks for every (tuple, time to the next request, tuples in the buffer), which
    is O(|S| c_loop w). But while the join is busy it makes no difference when tuples are kept, only how many, and they
    are the best of the ``c_loop`` that come meanwhile. So states are needed only where the join waits: O(|S| (w +
    c_loop)) time, and |S| w bits for the schedule, besides 8 w c_loop bytes.

    Parameters
    ----------
    w, c_loop
        Tuples of a packet, and tuples that come during an iteration of MESHJOIN.
    first_request
        When the join asks first, from 0 to ``c_loop``. 0 is the paper's ``optloss(0, 0, 0)``: the join is idle, and
        takes a packet as soon as there is one. TOPW's first interval is a whole one, as if the join were busy until
        then: ``c_loop`` compares with it, and is what the numbers of Fig. 8 need.
    partial_packets
        Whether the join may be given a buffer that is not full. The paper does not allow it; where a packet is short
        of a tuple when a good stretch begins, that costs results.
    memory
        What the tables may take.

    MESH 4.2, "Offline optimal shedding", Theorem 4.1.

    >>> stream = np.array([1, 1, 1, 1, 4, 4, 4, 4])
    >>> best = OptimalOffline(2, 4, first_request=4).schedule(stream)
    >>> best.loss, best.kept.tolist(), best.stalls.tolist()
    (4, [False, False, False, False, True, True, True, True], [2])
    """

    name = "optimal_offline"

    def __init__(
        self,
        w: int,
        c_loop: int,
        *,
        first_request: int = 0,
        partial_packets: bool = False,
        memory: int | str = "1GB",
    ) -> None:
        self.w = whole_number("w", w, least=0, most=2**31 - 2)
        self.c_loop = whole_number("c_loop", c_loop, least=1, most=2**31 - 2)
        self.first_request = whole_number("first_request", first_request, least=0, most=self.c_loop)
        self.partial_packets = partial_packets
        self._budget = MemoryBudget(memory)

    def schedule(self, matches: Int64s) -> OfflineSchedule:
        """The best schedule for a stream whose tuple ``i``, at time ``i``, has ``matches[i]`` results.

        A time without a tuple is one with no matches.
        """
        if matches.ndim != 1 or not np.issubdtype(matches.dtype, np.integer):
            raise InvalidArgument(
                f"matches have shape {matches.shape} and type {matches.dtype}; give a row of integers."
            )
        if matches.size and matches.min() < 0:
            raise InvalidArgument(f"matches has {matches.min()}; a tuple cannot give fewer than 0 results.")
        values = np.ascontiguousarray(matches, np.int64)
        n = values.size
        if self.w == 0 or n == 0:
            none = np.empty(0, np.int64)
            return OfflineSchedule(int(values.sum()), np.zeros(n, np.bool_), none, none)
        w, c_loop, first = min(self.w, n), min(self.c_loop, n), min(self.first_request, n)
        self._budget.require(self._bytes(n, w, c_loop), purpose="the tables of the optimal schedule")
        keeps = np.zeros((n, self._row_bytes(w)), np.uint8)
        start_keeps = np.zeros(n, np.int32)
        loss, first_keeps = solve_offline(values, w, c_loop, first, self.partial_packets, keeps, start_keeps)
        kept = np.zeros(n, np.bool_)
        requests, transfers = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
        packets = follow_schedule(
            values,
            w,
            c_loop,
            first,
            self.partial_packets,
            keeps,
            start_keeps,
            first_keeps,
            kept,
            requests,
            transfers,
        )
        return OfflineSchedule(int(loss), kept, requests[:packets].copy(), transfers[:packets].copy())

    def _row_bytes(self, w: int) -> int:
        """Bytes of the bits that are kept for a tuple."""
        return (2 * w + 1 if self.partial_packets else w) // 8 + 1

    def _bytes(self, n: int, w: int, c_loop: int) -> int:
        return n * (self._row_bytes(w) + 8 + 4 + 1 + 16) + 8 * (c_loop + 1) * (w + 2)
