"""Chains in the flow graph of a window join. Tuples that gain at the same instants share a chain.

Chain g holds the tuples ``entry_ptr[g]:entry_ptr[g + 1]`` in order of arrival, which is also their order of expiry.
Its matches are ``match_ptr[g]:match_ptr[g + 1]``: the instants at which each of its tuples in memory gains ``gain``.
Node ``first_node + j`` stands for match j. A unit of flow is a slot of memory. It leaves the timeline where a tuple
arrives, runs from match to match, and returns to the timeline at the instant after which the tuple is dropped.
"""

from semistream.kernels.array_types import Int32s, Int64s
from semistream.kernels.compiler import kernel


@kernel
def link_chains(
    entry_ptr: Int64s,
    entry_at: Int64s,
    entry_end: Int64s,
    match_ptr: Int64s,
    match_at: Int64s,
    gain: Int64s,
    first_node: int,
    tails: Int32s,
    heads: Int32s,
    capacities: Int64s,
    costs: Int64s,
    entry_arc: Int64s,
    exit_arc: Int64s,
) -> int:
    """Write the arcs of all chains, and the arc of each entry and of each match's exit (-1: none); return their number.

    The number is at most ``entry_at.size + 2 * match_at.size``. The arc from a match to the next has room for the
    tuples that had arrived before the first and have not expired at the second. It does not matter which of them
    stay, because they gain the same: a younger one could always have replaced an older one when it arrived.
    """
    arcs = 0
    entry_arc[:] = -1
    exit_arc[:] = -1
    for g in range(entry_ptr.size - 1):
        first, last = match_ptr[g], match_ptr[g + 1]
        j = first
        for e in range(entry_ptr[g], entry_ptr[g + 1]):
            while j < last and match_at[j] <= entry_at[e]:
                j += 1
            if j == last:
                break
            if entry_end[e] > match_at[j]:
                tails[arcs], heads[arcs] = entry_at[e], first_node + j
                capacities[arcs], costs[arcs] = 1, -gain[j]
                entry_arc[e] = arcs
                arcs += 1
        arrived = expired = expired_then = entry_ptr[g]
        for j in range(first, last):
            while arrived < entry_ptr[g + 1] and entry_at[arrived] < match_at[j]:
                arrived += 1
            while expired < arrived and entry_end[expired] <= match_at[j]:
                expired += 1
            if arrived == expired:
                continue
            tails[arcs], heads[arcs] = first_node + j, match_at[j]
            capacities[arcs], costs[arcs] = arrived - expired, 0
            exit_arc[j] = arcs
            arcs += 1
            if j + 1 == last:
                continue
            expired_then = max(expired_then, expired)
            while expired_then < arrived and entry_end[expired_then] <= match_at[j + 1]:
                expired_then += 1
            if arrived > expired_then:
                tails[arcs], heads[arcs] = first_node + j, first_node + j + 1
                capacities[arcs], costs[arcs] = arrived - expired_then, -gain[j + 1]
                arcs += 1
    return arcs


@kernel
def total_gain(
    entry_ptr: Int64s, entry_at: Int64s, entry_end: Int64s, match_ptr: Int64s, match_at: Int64s, gain: Int64s
) -> int:
    """Return the gain of all chains if no tuple is dropped before it expires."""
    total = 0
    for g in range(entry_ptr.size - 1):
        arrived = expired = entry_ptr[g]
        for j in range(match_ptr[g], match_ptr[g + 1]):
            while arrived < entry_ptr[g + 1] and entry_at[arrived] < match_at[j]:
                arrived += 1
            while expired < arrived and entry_end[expired] <= match_at[j]:
                expired += 1
            total += gain[j] * (arrived - expired)
    return total


@kernel
def follow_chains(
    entry_ptr: Int64s,
    entry_at: Int64s,
    match_ptr: Int64s,
    match_at: Int64s,
    entry_arc: Int64s,
    exit_arc: Int64s,
    flows: Int64s,
    until: Int64s,
) -> None:
    """Compute from the flows the last instant of each tuple in memory; its arrival if it is never kept.

    A chain keeps its youngest tuples, as many as the flow says. If a tuple arrives and the number does not grow, the
    oldest one leaves, which may be the new tuple itself.
    """
    for g in range(entry_ptr.size - 1):
        oldest = entry_ptr[g]
        j = match_ptr[g]
        for e in range(entry_ptr[g], entry_ptr[g + 1] + 1):
            is_end = e == entry_ptr[g + 1]
            while j < match_ptr[g + 1] and (is_end or match_at[j] <= entry_at[e]):
                if exit_arc[j] >= 0:
                    for _ in range(flows[exit_arc[j]]):
                        until[oldest] = match_at[j]
                        oldest += 1
                j += 1
            if not is_end and (entry_arc[e] < 0 or flows[entry_arc[e]] == 0):
                until[oldest] = entry_at[e]
                oldest += 1
