"""OptimalOffline: the schedule with the least loss, for a stream known to its end."""

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
    """Schedule of a stream: the tuples kept, and when the join gets them.

    Times are numbers of tuples: time i is the arrival of tuple i.

    Parameters
    ----------
    loss : int
        Results lost.
    kept : array of bool
        Mask of the tuples kept.
    requests, transfers : array of int
        For each packet, when the join asked for it and when it got it, as the number of the next tuple to arrive. The
        rest of the buffer, handed over after the end of the stream, is not listed.

    Examples
    --------
    >>> best = OptimalOffline(2, 4, first_request=4).schedule(np.array([1, 1, 1, 1, 4, 4, 4, 4]))
    >>> best.requests.tolist(), best.transfers.tolist(), best.loss
    ([4], [6], 4)

    References
    ----------
    MESH 4.2, "Offline optimal shedding", Fig. 8.
    """

    loss: int
    kept: Bools
    requests: Int64s
    transfers: Int64s

    @property
    def stalls(self) -> Int64s:
        """Waiting time of the join for each packet, in tuples that arrived meanwhile."""
        return self.transfers - self.requests


class OptimalOffline:
    """OPTOFFLINESHED: the benchmark for strategies that do not know the future.

    One tuple arrives at a time. Kept tuples wait in a buffer of ``w``. The join asks for a full buffer, takes it, is
    busy for ``c_loop`` tuples, and asks again. If the buffer is not full then, the join waits until it is: the optimum
    uses such waits to leave room for tuples of higher value.

    Guarantee: no schedule under these rules loses fewer results. The paper's recurrence, with the ``+ f_R(i)`` that
    line 11 of its pseudo-code (Fig. 9) drops, has a state for every (tuple, time to the next request, tuples in the
    buffer), which is O(|S| c_loop w). But while the join is busy, only the number of kept tuples matters, not when they
    are kept, and the best choice is the most valuable of the ``c_loop`` that arrive meanwhile. States are therefore
    needed only where the join waits: O(|S| (w + c_loop)) time, and |S| w bits for the schedule plus 8 w c_loop bytes.

    Parameters
    ----------
    w : int
        Tuples of a packet.
    c_loop : int
        Tuples that arrive during an iteration of MESHJOIN.
    first_request : int
        Time of the first request, from 0 to ``c_loop``. 0 is the paper's ``optloss(0, 0, 0)``: the join is idle, and
        takes the first full packet. TOPW's first interval is a whole one, as if the join were busy until then: use
        ``c_loop`` to compare with TOPW; the numbers of Fig. 8 need it too.
    partial_packets : bool
        True to allow handing over a partly filled buffer. The paper does not allow it, which costs results when a
        valuable stretch of the stream begins while the packet lacks a tuple.
    memory : int or str
        Memory limit for the tables: bytes, or text such as ``"1GB"``.

    Examples
    --------
    >>> stream = np.array([1, 1, 1, 1, 4, 4, 4, 4])
    >>> best = OptimalOffline(2, 4, first_request=4).schedule(stream)
    >>> best.loss, best.kept.tolist(), best.stalls.tolist()
    (4, [False, False, False, False, True, True, True, True], [2])

    References
    ----------
    MESH 4.2, "Offline optimal shedding", Theorem 4.1.
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
        """Return the best schedule for a stream whose tuple ``i``, at time ``i``, has ``matches[i]`` results.

        Use 0 matches for a time without a tuple.
        """
        if matches.ndim != 1 or not np.issubdtype(matches.dtype, np.integer):
            raise InvalidArgument(
                f"matches has shape {matches.shape} and type {matches.dtype}; give a one-dimensional array of integers."
            )
        if matches.size and matches.min() < 0:
            raise InvalidArgument(f"matches has {matches.min()}; give each tuple 0 results or more.")
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
        """Return the bytes of the decision bits of one tuple."""
        return (2 * w + 1 if self.partial_packets else w) // 8 + 1

    def _bytes(self, n: int, w: int, c_loop: int) -> int:
        return n * (self._row_bytes(w) + 8 + 4 + 1 + 16) + 8 * (c_loop + 1) * (w + 2)
