"""The operator and OPT-offline speak of one model: whatever the policy, results <= optimum <= exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.windows import (
    Expected,
    GivenProbabilities,
    LearntProbabilities,
    Life,
    OfflineOptimum,
    Policy,
    Prob,
    Random,
    Tuples,
    WindowJoin,
    count_window_pairs,
    optimal_offline,
    window_pairs,
)
from semistream.windows.optimum.exact_memory import exact_memory
from tests.windows import naive
from tests.windows.streams import SCHEMAS, Stream, batch_of, drive, pairs_of, streams, whole

SKETCH_TUPLES = 7  # memory of the smallest sketch of frequencies


@dataclass(frozen=True)
class Limits:
    """Windows of one unit, and a memory, as the operator, the optimum and the model take them."""

    lengths: tuple[int, int]
    by_tuples: bool
    memory: int
    allocation: str

    @property
    def operator(self) -> dict[str, Any]:
        left, right = (Tuples(n) if self.by_tuples else n for n in self.lengths)
        return {"window": {"left": left, "right": right}, "memory": self.memory, "allocation": self.allocation}

    @property
    def optimum(self) -> dict[str, Any]:
        unit = "tuples" if self.by_tuples else "time"
        return {"window": self.lengths, "unit": unit, "memory": self.memory, "allocation": self.allocation}

    @property
    def capacity(self) -> tuple[int, int] | int:
        """The left stream has the odd one."""
        return self.memory if self.allocation == "variable" else (-(-self.memory // 2), self.memory // 2)

    @property
    def windows(self) -> tuple[naive.Window, naive.Window]:
        left, right = (naive.Window(n, self.by_tuples) for n in self.lengths)
        return left, right


LIMITS = st.builds(
    Limits,
    st.tuples(st.integers(1, 10), st.integers(1, 10)),
    st.booleans(),
    st.integers(2, 9),
    st.sampled_from(["fixed", "variable"]),
)


def keys_and_times(left: Stream, right: Stream) -> tuple[tuple[pa.Array, pa.Array], dict[str, Any]]:
    keys = pa.array([key for _, key in left], pa.int64()), pa.array([key for _, key in right], pa.int64())
    return keys, {"left_times": [time for time, _ in left], "right_times": [time for time, _ in right]}


def best_of(left: Stream, right: Stream, **limits: Any) -> OfflineOptimum:
    keys, times = keys_and_times(left, right)
    return optimal_offline(*keys, **times, **limits)


def policies(left: Stream, right: Stream) -> Iterator[Policy]:
    tables = [pa.Table.from_batches([batch_of(stream, side)]) for side, stream in enumerate((left, right))]
    given_all = GivenProbabilities.of_streams(*tables, on="k")
    yield from (Prob(given_all), Life(given_all), Expected(given_all), Random(0), Random(1))


def results_of(policy: Policy, left: Stream, right: Stream, **limits: Any) -> int:
    join = WindowJoin(*SCHEMAS, on="k", time="t", policy=policy, **limits)
    return sum(pairs_of(list(drive(join, left, right, whole(left, right)))).values())


@dataclass
class Replayed(naive.Naive):
    """The model with a schedule: tuples leave when ``until`` says so, and then they must fit."""

    until: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    def fit(self) -> None:
        for one in list(self.memory):
            if self.until[one.side][one.position] <= self.now:
                self.leave(one)
        sizes = [sum(one.side == side for one in self.memory) for side in range(2)]
        if isinstance(self.capacity, tuple):
            assert sizes[0] <= self.capacity[0]
            assert sizes[1] <= self.capacity[1]
        else:
            assert self.capacity is not None
            assert sum(sizes) <= self.capacity


@settings(deadline=None, max_examples=150)
@given(left=streams(nulls=True), right=streams(nulls=True), limits=LIMITS)
def test_no_policy_gives_more_than_the_optimum_and_its_schedule_gives_it(
    left: Stream, right: Stream, limits: Limits
) -> None:
    best = best_of(left, right, **limits.optimum)
    exact = results_of(Random(), left, right, window=limits.operator["window"])
    assert best.results <= best.exact == exact
    for policy in policies(left, right):
        assert results_of(policy, left, right, **limits.operator) <= best.results, policy.name
    schedule = best.left_until.tolist(), best.right_until.tolist()
    replayed = Replayed(limits.windows, limits.capacity, until=schedule).run(left, right)
    assert sum(replayed.results.values()) == best.results


@settings(deadline=None, max_examples=40)
@given(left=streams(keys=3, rows=40), right=streams(keys=3, rows=40), limits=LIMITS)
def test_a_sketch_is_paid_for_in_tuples(left: Stream, right: Stream, limits: Limits) -> None:
    """A policy that learns has less room for tuples, and stays below the optimum of what it has."""
    best = best_of(left, right, **limits.optimum)
    learnt = Prob(LearntProbabilities(width=64))
    charged = {**limits.operator, "memory": limits.memory + SKETCH_TUPLES}
    assert results_of(learnt, left, right, **charged) <= best.results


@settings(deadline=None, max_examples=80)
@given(left=streams(nulls=True), right=streams(nulls=True), limits=LIMITS)
def test_exact_sizes_are_counted_without_the_pairs(left: Stream, right: Stream, limits: Limits) -> None:
    keys, times = keys_and_times(left, right)
    window = {name: limits.optimum[name] for name in ("window", "unit")}
    counted = count_window_pairs(*keys, **times, **window)
    assert counted == len(window_pairs(*keys, **times, **window))
    assert counted == sum(naive.Naive(limits.windows, None).run(left, right).results.values())


@settings(deadline=None, max_examples=120)
@given(left=streams(), right=streams(), limits=LIMITS)
def test_the_exact_memory_is_the_least_without_evictions(left: Stream, right: Stream, limits: Limits) -> None:
    _, times = keys_and_times(left, right)
    enough = exact_memory(**times, **{name: limits.optimum[name] for name in ("window", "unit", "allocation")})

    def evicted(memory: int) -> int:
        join = WindowJoin(*SCHEMAS, on="k", time="t", policy="random", **{**limits.operator, "memory": memory})
        for _ in drive(join, left, right, whole(left, right)):
            pass
        return join.stats.left.evicted + join.stats.right.evicted

    assert evicted(max(enough, 2)) == 0
    if enough > 2:
        assert evicted(enough - 1) > 0


@st.composite
def changing(draw: st.DrawFn) -> dict[str, Any]:
    """An instant at which windows and memory change."""
    return {
        "at": draw(st.integers(1, 20)),
        "windows": draw(st.tuples(st.integers(1, 10), st.integers(1, 10))),
        "memories": draw(st.tuples(st.integers(2, 9), st.integers(2, 9))),
        "allocation": draw(st.sampled_from(["fixed", "variable"])),
    }


def lives(stream: Stream, instants: list[int], change: dict[str, Any]) -> np.ndarray:
    """Return the lives of tuples if a change of the window applies to those in memory too.

    They expire with the last instant that can use them in the current window. A window that grows later does not bring
    them back.
    """
    before, after = change["windows"]

    def life(time: int) -> int:
        for now in instants:
            window = before if now < change["at"] else after
            if now >= time and now + 1 - time >= window:
                return now + (now - time < window) - time
        return 1000

    return np.array([life(time) for time, _ in stream], np.int64)


@settings(deadline=None, max_examples=100)
@given(left=streams(), right=streams(), change=changing())
def test_windows_and_memory_that_change_mean_the_same_to_both(
    left: Stream, right: Stream, change: dict[str, Any]
) -> None:
    instants = sorted({time for time, _ in [*left, *right]})
    memory = {-1: change["memories"][0], change["at"]: change["memories"][1]}
    windows = lives(left, instants, change), lives(right, instants, change)
    best = best_of(left, right, window=windows, memory=memory, allocation=change["allocation"])

    def run(policy: Policy, memories: tuple[int | None, int | None]) -> int:
        join = WindowJoin(
            *SCHEMAS,
            on="k",
            time="t",
            policy=policy,
            window=change["windows"][0],
            memory=memories[0],
            allocation=change["allocation"],
        )
        found = []
        sides = ("left", left), ("right", right)
        for number, (side, stream) in enumerate(sides):
            early = [row for row in stream if row[0] < change["at"]]
            found += join.push(side, batch_of(early, number))
        found += join.advance(change["at"])
        join.set_window(change["windows"][1])
        join.set_memory(memories[1])
        for number, (side, stream) in enumerate(sides):
            early = sum(time < change["at"] for time, _ in stream)
            found += join.push(side, batch_of(stream[early:], number, early))
        found += join.finish()
        return sum(pairs_of(found).values())

    assert best.results <= best.exact == run(Random(), (None, None))
    for policy in policies(left, right):
        assert run(policy, change["memories"]) <= best.results, policy.name


def test_both_split_an_odd_memory_alike() -> None:
    """Of three places the left stream has two: where only its tuples are worth keeping, two of them stay."""
    left, right = [(0, 1), (0, 2), (0, 3)], [(1, 1), (1, 2), (1, 3)]
    best = best_of(left, right, window=5, memory=3)
    assert (best.results, best.exact) == (2, 3)
    assert results_of(Random(), left, right, window=5, memory=3) == 2


@pytest.mark.parametrize("rows", [3, 4])
def test_a_window_of_tuples_has_no_more_than_its_tuples_at_one_instant(rows: int) -> None:
    """Of ``rows`` tuples at one instant the last three are in a window of three: the first joins nothing."""
    left, right = [(0, 7)] * rows, [(0, 7), (1, 7)]
    best = best_of(left, right, window=3, unit="tuples", memory=100)
    assert best.results == best.exact == 6
    assert results_of(Random(), left, right, window=Tuples(3), memory=100) == 6
