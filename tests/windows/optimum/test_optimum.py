"""OPT-offline: equal to the paper's graph, to brute force over all schedules, and its schedule gives what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.windows import optimal_offline, window_pairs
from semistream.windows.optimum.offline import OfflineOptimum
from tests.windows.join_model import (
    Streams,
    Tuple,
    best_of_all_schedules,
    equal_keys,
    exact,
    held_after,
    schedule_gives,
)
from tests.windows.optimum.literal_graph import literal_optimum

FIG_3 = np.array([1, 1, 1, 3, 2]), np.array([2, 3, 1, 1, 3])


def kept_until(best: OfflineOptimum) -> dict[Tuple, float]:
    left = {("l", i): time for i, time in enumerate(best.left_until.tolist())}
    return left | {("r", i): time for i, time in enumerate(best.right_until.tolist())}


def slots(memory: Any, now: float) -> int:
    if isinstance(memory, int):
        return memory
    return memory[max(since for since in memory if since <= now)]


def fits(memory: Any) -> Callable[[float, set[Tuple]], bool]:
    """Return a predicate: tuples fit into ``memory`` at a time; a pair gives each stream its own memory."""

    def both(now: float, kept: set[Tuple]) -> bool:
        if not isinstance(memory, tuple):
            return len(kept) <= slots(memory, now)
        return all(
            sum(one[0] == side for one in kept) <= slots(part, now) for side, part in zip("lr", memory, strict=True)
        )

    return both


def check(
    best: OfflineOptimum, streams: Streams, memory: Any, *, count_from: float = -np.inf, changes: tuple[float, ...] = ()
) -> None:
    """It is the most of all schedules, and its own schedule fits and gives as much."""
    instants = {streams.time(one) for one in streams.tuples}
    within = [time for time in changes if instants and min(instants) < time <= max(instants)]
    assert best.results == best_of_all_schedules(streams, fits(memory), within, count_from)
    until = kept_until(best)
    assert schedule_gives(streams, until, count_from) == best.results
    for now in [*instants, *within]:
        assert fits(memory)(now, held_after(streams, until, now))


def test_fig_3_misses_two_results():
    best = optimal_offline(*FIG_3, window=3, memory=2)
    assert (best.results, best.exact, best.missed) == (5, 7, 2)
    assert literal_optimum(*(keys.tolist() for keys in FIG_3), window=3, memory=2, shared=False) == 5


def test_the_memory_that_the_paper_says_is_enough_is():
    """Its first footnote: 2 w - 2 tuples. With one less of a stream something can be lost."""
    left, right = np.zeros(12, np.int64), np.zeros(12, np.int64)
    assert optimal_offline(left, right, window=4, memory=6).missed == 0
    assert optimal_offline(left, right, window=4, memory=(3, 2)).missed > 0


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_the_short_graph_and_the_papers_have_the_same_optimum(data: st.DataObject):
    n = data.draw(st.integers(4, 40), label="n")
    domain, window = data.draw(st.integers(1, 8), label="domain"), data.draw(st.integers(2, 10), label="window")
    half = data.draw(st.integers(1, min(window - 1, n - 1)), label="half")
    shared = data.draw(st.booleans(), label="shared")
    keys = st.lists(st.integers(0, domain), min_size=n, max_size=n)
    left, right = data.draw(keys, label="left"), data.draw(keys, label="right")
    best = optimal_offline(
        np.array(left), np.array(right), window=window, memory=2 * half, allocation="variable" if shared else "fixed"
    )
    assert best.results == literal_optimum(left, right, window, 2 * half, shared=shared)


@st.composite
def small_streams(draw: st.DrawFn) -> dict[str, Any]:
    """Two small streams with times, lives, keys and memory of any kind."""
    times = st.lists(st.integers(0, 8), max_size=5).map(sorted)
    left_times, right_times = draw(times), draw(times)
    keys = st.integers(0, 2)
    left, right = draw(st.tuples(*[keys] * len(left_times))), draw(st.tuples(*[keys] * len(right_times)))
    life = st.integers(1, 6)
    same = draw(st.booleans())
    lives = [
        [draw(life)] * len(times) if same else draw(st.lists(life, min_size=len(times), max_size=len(times)))
        for times in (left_times, right_times)
    ]
    memory = st.integers(0, 3) | st.fixed_dictionaries({0: st.integers(0, 3)}, optional={3: st.integers(0, 3)})
    return {
        "left": list(left),
        "right": list(right),
        "left_times": left_times,
        "right_times": right_times,
        "lives": lives,
        "memory": draw(memory | st.tuples(memory, memory)),
        "count_from": draw(st.none() | st.integers(0, 8)),
    }


def solve(case: dict[str, Any], **more: Any) -> tuple[OfflineOptimum, Streams]:
    best = optimal_offline(
        np.array(case["left"], np.int64),
        np.array(case["right"], np.int64),
        window=tuple(np.array(lives, np.int64) for lives in case["lives"]),
        memory=case["memory"],
        allocation="fixed" if isinstance(case["memory"], tuple) else "variable",
        left_times=case["left_times"],
        right_times=case["right_times"],
        count_from=case["count_from"],
        **more,
    )
    weights = equal_keys(case["left"], case["right"])
    return best, Streams(case["left_times"], case["right_times"], *case["lives"], weights)


def changes_of(memory: Any) -> tuple[float, ...]:
    parts = memory if isinstance(memory, tuple) else (memory,)
    return tuple(time for part in parts if isinstance(part, dict) for time in part)


@settings(deadline=None, max_examples=250)
@given(small_streams())
def test_it_is_the_best_of_all_schedules(case: dict[str, Any]):
    best, streams = solve(case)
    count_from = -np.inf if case["count_from"] is None else case["count_from"]
    check(best, streams, case["memory"], count_from=count_from, changes=changes_of(case["memory"]))
    if case["count_from"] is None:
        assert best.exact == exact(streams)


@settings(deadline=None, max_examples=150)
@given(small_streams(), st.data())
def test_any_predicate_and_any_weights(case: dict[str, Any], data: st.DataObject):
    everything = [(i, j) for i in range(len(case["left"])) for j in range(len(case["right"]))]
    chosen = data.draw(st.sets(st.sampled_from(everything)) if everything else st.just(set()))
    values = st.integers(-3, 5) | st.sampled_from([0.5, 0.25, -1.75, 1000.125])
    weights = {pair: data.draw(values) for pair in sorted(chosen)}
    case["count_from"] = None

    def val(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.array([weights[pair] for pair in zip(left.tolist(), right.tolist(), strict=True)], np.float64)

    pairs = tuple(np.array(side, np.int64) for side in zip(*weights, strict=True)) if weights else ([], [])
    best, streams = solve(case, pairs=pairs, val=val)
    streams = Streams(streams.left_times, streams.right_times, streams.left_lives, streams.right_lives, weights)
    check(best, streams, case["memory"], changes=changes_of(case["memory"]))
    assert best.exact == exact(streams)


@settings(deadline=None, max_examples=50)
@given(small_streams(), st.integers(1, 4), st.integers(1, 4))
def test_windows_in_tuples(case: dict[str, Any], left_window: int, right_window: int):
    """The last so many tuples of a stream at each instant; of more that come at once the first are in no window."""
    best = optimal_offline(
        np.array(case["left"], np.int64),
        np.array(case["right"], np.int64),
        window=(left_window, right_window),
        unit="tuples",
        memory=case["memory"],
        allocation="fixed" if isinstance(case["memory"], tuple) else "variable",
        left_times=case["left_times"],
        right_times=case["right_times"],
    )
    lives = []
    for times, window in ((case["left_times"], left_window), (case["right_times"], right_window)):
        pushed = [*times, *[np.inf] * window]
        lives.append([pushed[i + window] - time for i, time in enumerate(times)])
    equal = equal_keys(case["left"], case["right"])
    weights = {(i, j): one for (i, j), one in equal.items() if lives[0][i] > 0 and lives[1][j] > 0}
    streams = Streams(case["left_times"], case["right_times"], *lives, weights)
    check(best, streams, case["memory"], changes=changes_of(case["memory"]))
    assert best.exact == exact(streams)


def test_chains_by_key_and_by_row_agree_on_a_longer_run():
    """A val of one for every pair takes the other way through the graph."""
    rng = np.random.default_rng(5)
    left, right = rng.integers(0, 20, 1500), rng.integers(0, 20, 1500)
    for allocation, memory in (("fixed", 40), ("variable", 41)):
        short = optimal_offline(left, right, window=60, memory=memory, allocation=allocation)
        long = optimal_offline(
            left, right, window=60, memory=memory, allocation=allocation, val=lambda a, b: np.ones(len(a), np.int64)
        )
        assert (short.results, short.exact) == (long.results, long.exact)
        assert short.arcs < 9 * 1500 < long.arcs
        assert short.results < short.exact


def test_unbounded_joins_and_exact_sizes_are_duckdbs():
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 30, 400), rng.integers(0, 30, 500)
    left_times, right_times = np.sort(rng.integers(0, 900, 400)), np.sort(rng.integers(0, 900, 500))
    tables = {
        "l": pa.table({"k": left, "t": left_times, "i": np.arange(400)}),
        "r": pa.table({"k": right, "t": right_times, "i": np.arange(500)}),
    }
    for window, condition in (((50, 20), "r.t - l.t < 50 AND l.t - r.t < 20"), (None, "TRUE")):
        with duckdb.connect() as connection:
            for name, table in tables.items():
                connection.register(name, table)
            found = connection.sql(f"SELECT l.i, r.i FROM l JOIN r ON l.k = r.k AND {condition}").fetchall()
        given_times = {"left_times": left_times, "right_times": right_times}
        pairs = window_pairs(left, right, window=window, **given_times)
        assert sorted(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)) == sorted(found)
        best = optimal_offline(left, right, window=window, memory=1000, allocation="variable", **given_times)
        assert best.results == best.exact == len(found)


def test_nulls_never_match_and_keys_may_have_several_columns():
    left = pa.table({"a": [1, None, 1], "b": ["x", "x", None]})
    right = pa.table({"a": [1, None, 1], "b": ["x", "x", "x"]})
    best = optimal_offline(left, right, window=10, memory=100)
    assert best.results == best.exact == 2


def test_times_may_be_floats():
    best = optimal_offline(
        np.array([1, 2]), np.array([2, 1]), window=0.5, memory=2, left_times=[0.0, 0.1], right_times=[0.25, 0.5]
    )
    assert best.results == best.exact == 1  # 0.5 is no longer within half a unit of 0.0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"window": 0}, "window of left is 0"),
        ({"window": -1.5}, "-1.5"),
        ({"window": np.array([1, 2])}, "one for each of the 5"),
        ({"window": (3, 3, 3)}, "3 parts"),
        ({"memory": -1}, "memory is -1"),
        ({"memory": 2.5}, "2.5"),
        ({"memory": {2: 4}}, "after the first tuple"),
        ({"memory": (1, 1), "allocation": "variable"}, "give one"),
        ({"allocation": "half"}, "'half'"),
        ({"left_times": [0, 1, 2, 2, 1]}, "tuple 4 arrives at 1, before tuple 3 at 2"),
        ({"left_times": [0, 1]}, "5 tuples"),
        ({"left_times": [0, 1, 2, 3, np.nan]}, "nan"),
        ({"unit": "rows"}, "'rows'"),
        ({"unit": "tuples", "window": 1.5}, "whole number"),
        ({"pairs": ([0, 0], [1, 1])}, r"\(0, 1\) twice"),
        ({"pairs": ([5], [1])}, "left rows 5 to 5; give rows from 0 to "),
        ({"pairs": ([0, 1], [1])}, "the same number of each"),
        ({"val": lambda left, right: np.ones(1)}, "a number for each"),
        ({"val": lambda left, right: np.full(len(left), np.inf)}, "not finite"),
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any], says: str):
    with pytest.raises(InvalidArgument, match=says):
        optimal_offline(*FIG_3, **{"window": 3, "memory": 2, **wrong})


def test_keys_of_other_types_are_refused():
    with pytest.raises(KeyTypeError, match="int64, string"):
        optimal_offline(pa.array([1]), pa.array(["1"]), window=1, memory=2)


def test_empty_streams_give_nothing():
    nothing = np.empty(0, np.int64)
    assert optimal_offline(nothing, nothing, window=3, memory=2).results == 0
    assert optimal_offline(nothing, np.array([1]), window=3, memory=2).exact == 0
