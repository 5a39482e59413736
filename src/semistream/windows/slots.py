"""Slots: how many tuples fit into memory, and from which instant on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.types import Int64s
from semistream.windows.timeline import Times

Slots: TypeAlias = int | Mapping[float, int]
Allocation: TypeAlias = Literal["fixed", "variable"]


def pools_of(memory: Slots | tuple[Slots, Slots], allocation: Allocation) -> list[Slots]:
    """The memory of each pool of tuples: one for both streams if it is shared, else the left's and the right's.

    The paper has M / 2 for each; of an odd M the left stream gets the one that is over, as in `Capacity`.

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
            raise InvalidArgument(f"memory has {len(memory)} parts; give two: of the left stream, of the right.")
        return list(memory)
    if not isinstance(memory, Mapping):
        return list(_halves(memory))
    halves = {since: _halves(slots) for since, slots in memory.items()}
    return [{since: parts[side] for since, parts in halves.items()} for side in range(2)]


def change_times(memory: Slots) -> list[float]:
    """When it changes."""
    return list(memory) if isinstance(memory, Mapping) else []


def slots_at(memory: Slots, instants: Times) -> Int64s:
    """How many tuples fit from each of the ``instants`` on.

    >>> slots_at({0: 5, 60: 2}, np.array([0, 59, 60, 61])).tolist()
    [5, 5, 2, 2]
    """
    if not isinstance(memory, Mapping):
        return np.full(instants.size, _whole(memory), dtype=np.int64)
    since = sorted(memory)
    if not since or (instants.size and since[0] > instants[0]):
        raise InvalidArgument(
            f"memory begins at {since[0] if since else 'no time'}, after the first tuple at {instants[:1].tolist()}; "
            "give how much there is from then on."
        )
    slots = np.array([_whole(memory[time]) for time in since], dtype=np.int64)
    return slots[np.searchsorted(np.array(since), instants, side="right") - 1]


def _whole(slots: Any) -> int:
    if isinstance(slots, bool) or not isinstance(slots, int | np.integer) or not 0 <= slots < 2**63:
        raise InvalidArgument(f"memory is {slots!r}; give a whole number of tuples, or a mapping of times to such.")
    return int(slots)


def _halves(slots: int) -> tuple[int, int]:
    whole = _whole(slots)
    return whole - whole // 2, whole // 2
