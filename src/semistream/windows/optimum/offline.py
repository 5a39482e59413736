"""OPT-offline: the most results of a window join under any policy in a given memory, by minimum-cost flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.windows.optimum.flow_graph import Allocation, Chains, Slots, change_times, pools_of, slots_at
from semistream.windows.optimum.min_cost_flow import least_cost_flow, whole_costs
from semistream.windows.optimum.pairs import WindowPairs, codes_in_window, equal_pairs, given_pairs
from semistream.windows.optimum.timeline import Lifetimes, Timeline, Times, Unit, Window, arrival_times
from semistream.windows.row_codes import Rows, row_codes

_STRIDES = [4**level for level in range(12)]
Val: TypeAlias = Callable[[Int64s, Int64s], npt.NDArray[Any]]


@dataclass(frozen=True)
class OfflineOptimum:
    """Result of OPT-offline: the most results of any policy, and the schedule that has them.

    Parameters
    ----------
    results : float
        The optimum: a number of pairs, or their weight.
    exact : float
        The same for a join with enough memory.
    left_until, right_until : array
        The schedule: the last time at which each tuple is in memory when others arrive, or its arrival time if it is
        never kept.
    arcs : int
        Size of the flow graph.

    Examples
    --------
    >>> keys = np.array([1, 2, 1, 2])
    >>> best = optimal_offline(keys, keys, window=3, memory=2)
    >>> best.results, best.exact, best.missed, best.left_until.tolist()
    (6, 8, 2, [2, 1, 2, 3])

    References
    ----------
    WINDOW 4.1.2. docs/windows.md.
    """

    results: float
    exact: float
    left_until: Times
    right_until: Times
    arcs: int

    @property
    def missed(self) -> float:
        """Results lost for lack of memory under every policy."""
        return self.exact - self.results


def optimal_offline(
    left: Rows,
    right: Rows,
    *,
    window: Window | tuple[Window, Window],
    memory: Slots | tuple[Slots, Slots],
    allocation: Allocation = "fixed",
    unit: Unit = "time",
    left_times: npt.ArrayLike | None = None,
    right_times: npt.ArrayLike | None = None,
    pairs: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    val: Val | None = None,
    count_from: float | None = None,
) -> OfflineOptimum:
    """Return the most results that a window join of two known streams can have in limited memory, and the schedule.

    The model is the paper's fast CPU (WINDOW 2.1, 2.3) and that of `WindowJoin`: no policy has more results in the
    same memory. All tuples of an instant t arrive together. First, expired tuples leave: with window w, a tuple that
    arrived at i is in the window while t < i + w. Then each arriving tuple joins the other stream's tuples in memory,
    and those that arrive with it. It needs no memory for this, so it is always seen. Last, the tuples to keep until
    the next instant are chosen, old or new: at most ``memory`` of both streams, or of each stream's part. Dropped
    tuples do not come back. The returned schedule has the most results of all schedules of this kind. Needs OR-tools
    (``pip install 'semistream[windows]'``).

    Parameters
    ----------
    left, right : array or table
        Keys of the two streams, in order of arrival: an Arrow or NumPy column, or a table of key columns. Nulls never
        match.
    window : number, array, None or a tuple of two
        Lifetime of a tuple in units of time; one for both streams, one for each, an array with one for each tuple, or
        None for an unbounded join. Give a changing window as one for each tuple. In 6.1.1 this is the window in force
        on arrival; for `WindowJoin.set_window`, which also affects the tuples in memory (6.2), it is the time until
        the tuple is first outside.
    memory : int, mapping or a tuple of two
        Number of tuples that fit. A mapping such as ``{0: 400, 60: 100}`` gives it from each time on. Fixed
        allocation halves it, with one more for the left stream if it is odd, or takes a pair for the left and the
        right stream.
    allocation : {"fixed", "variable"}
        ``"fixed"``, or ``"variable"``: the streams share the memory in any ratio.
    unit : {"time", "tuples"}
        ``"time"``, or ``"tuples"``: the window holds the latest tuples of the same stream at each instant, including
        all that arrive then. If more arrive than it holds, the first of these are in no window and join nothing.
    left_times, right_times : array, optional
        Arrival times, ascending; several tuples may arrive at once, or none for a while (6.1.1). Default: one per
        time unit.
    pairs : tuple of two arrays, optional
        Row numbers (left, right) of the matching pairs, for any other predicate (6.1.2). Pairs outside a window do
        not count. Keys are then ignored.
    val : callable, optional
        Weights of pairs (6.1.3): a function of arrays of left and right rows. Whole numbers are summed exactly;
        others are first rounded to about 50 bits of the largest. A negative weight is the cost of keeping a tuple.
    count_from : float, optional
        Ignore results before this time: the paper's warm-up (5.2).

    Examples
    --------
    The paper's Fig. 3: two of seven results are missed. Sharing the memory saves one of them.

    >>> r, s = np.array([1, 1, 1, 3, 2]), np.array([2, 3, 1, 1, 3])
    >>> best = optimal_offline(r, s, window=3, memory=2)
    >>> best.results, best.exact, best.right_until.tolist()
    (5, 7, [0, 3, 2, 3, 4])
    >>> optimal_offline(r, s, window=3, memory=2, allocation="variable").results
    6

    Notes
    -----
    The graph of WINDOW 4.1 has a node for each tuple at each instant: O(w N). Here a slot of memory is a unit of flow
    on a timeline with one node per instant. It leaves the timeline where a tuple arrives and returns where the tuple
    is dropped, which need only be at an instant at which it gains: O(N + matches) arcs. In an equi-join, all tuples
    with a key gain at the same instants and can share one chain: O(N) arcs for every window, and 10**5 tuples per
    stream take about a minute (``benchmarks/window_optimum.py``). Both graphs have the optimum of the paper's graph.
    The paper's graph has no solution if memory holds at least a whole window (M >= 2 w), because all its arcs have
    capacity 1.

    References
    ----------
    WINDOW 4.1 (OPT-offline, Theorem 4), 6.1 (extensions).
    """
    codes = row_codes(left, right) if pairs is None else []
    times = arrival_times("left", left_times, len(left)), arrival_times("right", right_times, len(right))
    pools = pools_of(memory, allocation)
    changes = [time for pool in pools for time in change_times(pool)]
    line = Timeline.of(*times, window=window, unit=unit, changes=changes)
    counted = np.full(line.instants.size, True) if count_from is None else line.instants >= count_from
    if pairs is None:
        codes = [codes_in_window(own, side) for own, side in zip(codes, (line.left, line.right), strict=True)]
    if pairs is None and val is None and line.left.expire_in_order and line.right.expire_in_order:
        by_left = Chains.by_key(codes[0], line.left, codes[1], line.right, counted)
        by_right = Chains.by_key(codes[1], line.right, codes[0], line.left, counted)
        beside, unit_worth = _count_beside(codes[0], codes[1], line, counted), None
    else:
        met = equal_pairs(codes[0], codes[1], line) if pairs is None else given_pairs(pairs, len(left), len(right))
        by_left, by_right, beside, unit_worth = _chains_of_pairs(met.within(line), line, val, counted)
    chains = [(by_left, line.left), (by_right, line.right)]
    groups = [chains] if allocation == "variable" else [[each] for each in chains]
    kept, arcs = 0, 0
    until: list[Times] = []
    for pool, members in zip(pools, groups, strict=True):
        gain, lasts, size = _solve(members, slots_at(pool, line.instants))
        kept, arcs = kept + gain, arcs + size
        until += [line.instants[last] for last in lasts]
    results, exact = beside + kept, beside + by_left.exact + by_right.exact
    if unit_worth is not None:
        return OfflineOptimum(results * unit_worth, exact * unit_worth, until[0], until[1], arcs)
    return OfflineOptimum(results, exact, until[0], until[1], arcs)


def _count_beside(left_codes: Int64s, right_codes: Int64s, line: Timeline, counted: Bools) -> int:
    """Count the pairs of tuples with equal codes that arrive at the same instant."""
    span = max(1, line.instants.size)
    sides = ((left_codes, line.left.at), (right_codes, line.right.at))
    shown = [(codes * span + at)[(codes >= 0) & counted[at]] for codes, at in sides]
    (left, left_count), (right, right_count) = (np.unique(places, return_counts=True) for places in shown)
    _, i, j = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    return int(left_count[i] @ right_count[j])


def _chains_of_pairs(
    pairs: WindowPairs, line: Timeline, val: Val | None, counted: Bools
) -> tuple[Chains, Chains, int, float | None]:
    """Return chains of single tuples, the worth of pairs that arrive together, and the worth of one unit (None: 1)."""
    left_at, right_at = line.left.at[pairs.left], line.right.at[pairs.right]
    values = np.ones(len(pairs), dtype=np.int64) if val is None else np.asarray(val(pairs.left, pairs.right))
    if values.shape != (len(pairs),) or values.dtype.kind not in "iufb":
        raise InvalidArgument(
            f"val returned {values.dtype} of shape {values.shape} for {len(pairs)} pairs; return a number for each."
        )
    size = line.instants.size
    at_once = max(int(np.bincount(side.at).max(initial=1)) for side in (line.left, line.right))  # gains that add up
    gains, worth = whole_costs(
        np.where(counted[np.maximum(left_at, right_at)], values, 0), (2 * len(pairs) + size) * at_once
    )
    older_left, older_right = left_at < right_at, right_at < left_at
    by_left = Chains.by_row(pairs.left[older_left], right_at[older_left], gains[older_left], line.left, size)
    by_right = Chains.by_row(pairs.right[older_right], left_at[older_right], gains[older_right], line.right, size)
    beside = int(gains[left_at == right_at].sum())
    return by_left, by_right, beside, worth if values.dtype.kind == "f" else None


def _solve(members: list[tuple[Chains, Lifetimes]], slots: Int64s) -> tuple[int, list[Int64s], int]:
    """Return the largest gain of streams that share ``slots``, the last instants of their tuples, and the arcs."""
    n = slots.size
    if n < 2:
        return 0, [side.at for _, side in members], 0
    slots = np.minimum(slots[:-1], sum(side.at.size for _, side in members))  # more slots than tuples are never used
    nodes, parts = n, []
    for chains, _ in members:
        parts.append(chains.arcs(nodes))
        nodes += chains.match_at.size
    tails, heads = _idle_arcs(n)
    flows, cost = least_cost_flow(
        np.concatenate([tails, *(part.tails for part in parts)]),
        np.concatenate([heads, *(part.heads for part in parts)]),
        np.concatenate([np.full(tails.size, slots.max()), *(part.capacities for part in parts)]),
        np.concatenate([np.zeros(tails.size, dtype=np.int64), *(part.costs for part in parts)]),
        np.concatenate([np.diff(slots, prepend=0, append=0), np.zeros(nodes - n, dtype=np.int64)]),
    )
    ends = np.cumsum([tails.size, *(part.tails.size for part in parts)])
    lasts = [
        chains.kept_until(part, flows[begin:end], side)
        for (chains, side), part, begin, end in zip(members, parts, ends[:-1], ends[1:], strict=True)
    ]
    return -cost, lasts, int(ends[-1])


def _idle_arcs(instants: int) -> tuple[Int32s, Int32s]:
    """Return the arcs of the timeline for empty slots: from an instant to the next, and over 4, 16, 64, ... at once.

    All flow between two instants comes from earlier supplies, which equal the number of slots. Idle arcs therefore
    need no capacity of their own. The longer ones only save time, because the solver moves units along short paths:
    at 10**5 instants it takes a third of the time.
    """
    tails = [np.arange(0, instants - stride, stride, dtype=np.int32) for stride in _STRIDES]
    heads = [tail + np.int32(stride) for tail, stride in zip(tails, _STRIDES, strict=True)]
    return np.concatenate(tails), np.concatenate(heads)
