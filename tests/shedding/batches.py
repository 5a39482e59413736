"""Batches in parts, and strategies applied to them as tasks and a driver would."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from semistream.kernels.array_types import Int64s
from semistream.shedding import Decision, Kept, Strategy, StreamPart

SECONDS = (0.0, 0.125, 0.3, 1.0)


def cut(matches: Sequence[int], ends: Sequence[int] = (), seconds: Sequence[float] | None = None) -> list[StreamPart]:
    """The rows of a batch in parts that end at some places."""
    values = np.array(matches, np.int64)
    costs = np.array(seconds, np.float64) if seconds is not None else None
    edges = [0, *sorted(min(end, values.size) for end in ends), values.size]
    return [
        StreamPart(end - begin, number, values[begin:end], None if costs is None else costs[begin:end])
        for number, (begin, end) in enumerate(itertools.pairwise(edges))
    ]


def decide(strategy: Strategy, parts: Sequence[StreamPart], limit: float, seed: int) -> Decision:
    return strategy.decide([strategy.summarize(part) for part in parts], limit, seed)


def applied(decision: Decision, parts: Sequence[StreamPart]) -> Kept:
    """Return the kept rows of all parts, one after the other."""
    kept = [decision.apply(part) for part in parts]
    return Kept(np.concatenate([k.mask for k in kept]), np.concatenate([k.inclusion for k in kept]))


def kept_of(strategy: Strategy, parts: Sequence[StreamPart], limit: float, seed: int) -> Kept:
    return applied(decide(strategy, parts, limit, seed), parts)


def ids_of(parts: Sequence[StreamPart]) -> Int64s:
    return np.concatenate([part.row_ids for part in parts])


matches_lists = st.lists(st.one_of(st.integers(0, 4), st.integers(0, 10**6)), max_size=40)
part_ends = st.lists(st.integers(0, 40), max_size=4)
seeds = st.integers(0, 2**64 - 1)
