"""Parts of the flow graph of a window join: chains of tuples with their gains, and memory slots over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.windows.optimum.kernels import follow_chains, link_chains, total_gain
from semistream.windows.optimum.timeline import Lifetimes, Times
from semistream.windows.row_codes import NULL


@dataclass(frozen=True)
class ChainArcs:
    """Arcs of chains, and the arc of each entry and of each match's exit (-1: none)."""

    tails: Int32s
    heads: Int32s
    capacities: Int64s
    costs: Int64s
    entry_arc: Int64s
    exit_arc: Int64s


@dataclass(frozen=True)
class Chains:
    """Tuples ``rows`` of a stream grouped into chains, and the instants and gains of the matches of each chain.

    `semistream.windows.optimum.kernels` describes the arrays.
    """

    rows: Int64s
    entry_ptr: Int64s
    entry_at: Int64s
    entry_end: Int64s
    match_ptr: Int64s
    match_at: Int64s
    gain: Int64s

    @classmethod
    def by_key(cls, codes: Int64s, side: Lifetimes, other_codes: Int64s, other: Lifetimes, counted: Bools) -> Chains:
        """Return one chain per key, for an equi-join whose tuples expire in order of arrival; O(tuples) in total.

        All tuples with a key gain at the instants at which the other stream brings that key: one result for each
        tuple it brings. ``counted`` marks the instants whose results count.
        """
        span = max(1, counted.size)
        places, gain = np.unique((other_codes * span + other.at)[other_codes != NULL], return_counts=True)
        match_code, match_at = np.divmod(places, span)
        keys = np.unique(match_code)
        rows = np.argsort(codes, kind="stable")  # rows are already in order of arrival
        rows = rows[np.isin(codes[rows], keys)]
        bounds = np.append(keys, np.iinfo(np.int64).max)
        return cls(
            rows,
            np.searchsorted(codes[rows], bounds),
            side.at[rows],
            side.end[rows],
            np.searchsorted(match_code, bounds),
            match_at,
            np.where(counted[match_at], gain, 0),
        )

    @classmethod
    def by_row(cls, rows: Int64s, partner_at: Int64s, worth: Int64s, side: Lifetimes, instants: int) -> Chains:
        """Return one chain per tuple, for arbitrary pairs: ``rows[i]`` gains ``worth[i]`` at ``partner_at[i]``."""
        span = max(1, instants)
        places, inverse = np.unique(rows * span + partner_at, return_inverse=True)
        gain = np.zeros(places.size, dtype=np.int64)
        np.add.at(gain, inverse, worth)
        match_row, match_at = np.divmod(places, span)
        owners, first = np.unique(match_row, return_index=True)
        pointers = np.arange(owners.size + 1)
        ends = np.append(first, places.size)
        return cls(owners, pointers, side.at[owners], side.end[owners], ends, match_at, gain)

    @property
    def exact(self) -> int:
        """Total gain if no tuple is dropped before it expires."""
        return int(total_gain(self.entry_ptr, self.entry_at, self.entry_end, self.match_ptr, self.match_at, self.gain))

    def arcs(self, first_node: int) -> ChainArcs:
        """Return the arcs. Node ``first_node + j`` is match j, and the instants are the nodes of the timeline."""
        most = self.rows.size + 2 * self.match_at.size
        tails, heads = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.int32)
        capacities, costs = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
        entry_arc, exit_arc = np.empty(self.rows.size, dtype=np.int64), np.empty(self.match_at.size, dtype=np.int64)
        n = link_chains(
            self.entry_ptr, self.entry_at, self.entry_end, self.match_ptr, self.match_at, self.gain,
            first_node, tails, heads, capacities, costs, entry_arc, exit_arc,
        )  # fmt: skip
        return ChainArcs(tails[:n], heads[:n], capacities[:n], costs[:n], entry_arc, exit_arc)

    def kept_until(self, arcs: ChainArcs, flows: Int64s, side: Lifetimes) -> Int64s:
        """Return the last instant of each tuple of the stream in memory, from the flows of the chains' arcs."""
        until = self.entry_at.copy()
        follow_chains(
            self.entry_ptr, self.entry_at, self.match_ptr, self.match_at, arcs.entry_arc, arcs.exit_arc, flows, until
        )
        everyone = side.at.copy()
        everyone[self.rows] = until
        return everyone


Slots: TypeAlias = int | Mapping[float, int]
Allocation: TypeAlias = Literal["fixed", "variable"]


def pools_of(memory: Slots | tuple[Slots, Slots], allocation: Allocation) -> list[Slots]:
    """Return the memory of each pool of tuples: one shared by both streams, or the left one's and the right one's.

    The paper gives M / 2 to each. For an odd M the left stream gets the extra slot, as in `Capacity`.

    >>> pools_of(10, "variable"), pools_of(11, "fixed"), pools_of((3, {0: 5, 60: 2}), "fixed")
    ([10], [6, 5], [3, {0: 5, 60: 2}])
    """
    if allocation == "variable":
        if isinstance(memory, tuple):
            raise InvalidArgument(f"memory is {memory!r}, a part for each stream; with variable allocation give one.")
        return [memory]
    if allocation != "fixed":
        raise InvalidArgument(f"allocation is {allocation!r}; give 'fixed' or 'variable'.")
    if isinstance(memory, tuple):
        if len(memory) != 2:
            raise InvalidArgument(f"memory has {len(memory)} parts; give two, for the left and the right stream.")
        return list(memory)
    if not isinstance(memory, Mapping):
        return list(_halves(memory))
    halves = {since: _halves(slots) for since, slots in memory.items()}
    return [{since: parts[side] for since, parts in halves.items()} for side in range(2)]


def change_times(memory: Slots) -> list[float]:
    """Return the times at which the memory changes."""
    return list(memory) if isinstance(memory, Mapping) else []


def slots_at(memory: Slots, instants: Times) -> Int64s:
    """Return the number of slots from each of the ``instants`` on.

    >>> slots_at({0: 5, 60: 2}, np.array([0, 59, 60, 61])).tolist()
    [5, 5, 2, 2]
    """
    if not isinstance(memory, Mapping):
        return np.full(instants.size, _whole(memory), dtype=np.int64)
    since = sorted(memory)
    if not since or (instants.size and since[0] > instants[0]):
        raise InvalidArgument(
            f"memory begins at {since[0] if since else 'no time'}, after the first tuple at {instants[:1].tolist()}; "
            "give the memory from the first tuple on."
        )
    slots = np.array([_whole(memory[time]) for time in since], dtype=np.int64)
    return slots[np.searchsorted(np.array(since), instants, side="right") - 1]


def _whole(slots: Any) -> int:
    if isinstance(slots, bool) or not isinstance(slots, int | np.integer) or not 0 <= slots < 2**63:
        raise InvalidArgument(f"memory is {slots!r}; give a whole number of tuples, or a mapping from times to such.")
    return int(slots)


def _halves(slots: int) -> tuple[int, int]:
    whole = _whole(slots)
    return whole - whole // 2, whole // 2
