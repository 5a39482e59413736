"""The window join of WINDOW 2.1 and 2.3 once more: brute force over all schedules, and the results of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

Tuple = tuple[str, int]  # "l" or "r", and the row
Weights = Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class Streams:
    """Times of arrival and lengths of life of two streams' tuples, and what pairs of them are worth."""

    left_times: list[float]
    right_times: list[float]
    left_lives: list[float]
    right_lives: list[float]
    weights: Weights

    def time(self, one: Tuple) -> float:
        return (self.left_times if one[0] == "l" else self.right_times)[one[1]]

    def life(self, one: Tuple) -> float:
        return (self.left_lives if one[0] == "l" else self.right_lives)[one[1]]

    @property
    def tuples(self) -> list[Tuple]:
        return [("l", i) for i in range(len(self.left_times))] + [("r", i) for i in range(len(self.right_times))]

    def worth(self, one: Tuple, other: Tuple) -> float:
        if one[0] == other[0]:
            return 0
        left, right = (one, other) if one[0] == "l" else (other, one)
        return self.weights.get((left[1], right[1]), 0)


def equal_keys(left: list[int], right: list[int]) -> dict[tuple[int, int], float]:
    return {(i, j): 1 for i, a in enumerate(left) for j, b in enumerate(right) if a == b}


def exact(streams: Streams) -> float:
    """The weight of all pairs in one window."""
    total = 0.0
    for (i, j), weight in streams.weights.items():
        a, b = ("l", i), ("r", j)
        older, younger = (a, b) if streams.time(a) <= streams.time(b) else (b, a)
        if streams.time(younger) < streams.time(older) + streams.life(older):
            total += weight
    return total


def best_of_all_schedules(
    streams: Streams, fits: Callable[[float, set[Tuple]], bool], changes: list[float], count_from: float = -np.inf
) -> float:
    """The most that any schedule gives: all sets of tuples that may be kept, from each instant to the next."""
    instants = sorted({*(streams.time(one) for one in streams.tuples), *changes})
    states: dict[frozenset[Tuple], float] = {frozenset(): 0.0}
    for now in instants:
        new = [one for one in streams.tuples if streams.time(one) == now]
        beside = sum(streams.worth(a, b) for a, b in combinations(new, 2))
        after: dict[frozenset[Tuple], float] = {}
        for memory, gained in states.items():
            alive = [one for one in memory if now < streams.time(one) + streams.life(one)]
            gain = beside + sum(streams.worth(old, one) for old in alive for one in new)
            total = gained + (gain if now >= count_from else 0)
            here = [*alive, *new]
            for size in range(len(here) + 1):
                for kept in combinations(here, size):
                    if fits(now, set(kept)):
                        state = frozenset(kept)
                        after[state] = max(total, after.get(state, -np.inf))
        states = after
    return max(states.values())


def schedule_gives(streams: Streams, until: Mapping[Tuple, float], count_from: float = -np.inf) -> float:
    """Return the results of a schedule: pairs whose older tuple is in memory and window when the younger arrives."""
    total = 0.0
    for (i, j), weight in streams.weights.items():
        a, b = ("l", i), ("r", j)
        older, younger = (a, b) if streams.time(a) <= streams.time(b) else (b, a)
        now = streams.time(younger)
        alive = now < streams.time(older) + streams.life(older)
        if now >= count_from and (now == streams.time(older) or (alive and now <= until[older])):
            total += weight
    return total


def held_after(streams: Streams, until: Mapping[Tuple, float], now: float) -> set[Tuple]:
    """Tuples in memory from ``now`` to the next instant."""
    return {one for one in streams.tuples if streams.time(one) <= now < until[one]}
