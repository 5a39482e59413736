"""The guarantee of CostAwareTopW, against every possible choice; tests/shedding has the shared properties."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from experiments.cost_aware_top_w import CostAwareTopW
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.shedding import StreamPart, TopW
from tests.shedding.batches import SECONDS, applied, cut, decide, kept_of, matches_lists, part_ends, seeds
from tests.shedding.naive import most_results


@settings(deadline=None, max_examples=150)
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(SECONDS)), max_size=9),
    limit=st.floats(0, 1.5),
    ends=part_ends,
    seed=seeds,
)
def test_less_than_one_row_is_lost_beyond_the_best_choice(
    rows: list[tuple[int, float]], limit: float, ends: list[int], seed: int
) -> None:
    matches, seconds = [m for m, _ in rows], [s for _, s in rows]
    parts = cut(matches, ends, seconds)
    decision = decide(CostAwareTopW(), parts, limit, seed)
    mask = applied(decision, parts).mask
    spent = sum(Fraction(s) for s, kept in zip(seconds, mask, strict=True) if kept)
    assert spent <= Fraction(limit)
    got = int(np.array(matches, np.int64)[mask].sum())
    assert got == decision.account.kept_results
    assert int(mask.sum()) == decision.account.kept_rows
    best = most_results(matches, seconds, limit)
    shed = np.array(matches, np.int64)[~mask]
    assert got <= best
    assert got == best or best - got < shed.max()
    assert all(mask[i] for i in range(len(rows)) if seconds[i] == 0)
    for cost in SECONDS:  # within a cost the rows with the most matches
        own = [(matches[i], bool(mask[i])) for i in range(len(rows)) if seconds[i] == cost]
        assert max((m for m, kept in own if not kept), default=-1) <= min((m for m, kept in own if kept), default=10)


@settings(deadline=None, max_examples=60)
@given(matches=matches_lists, ends=part_ends, w=st.integers(0, 50), seed=seeds)
def test_if_all_rows_cost_the_same_it_is_top_w(matches: list[int], ends: list[int], w: int, seed: int) -> None:
    parts = cut(matches, ends, [0.1] * len(matches))
    by_cost = kept_of(CostAwareTopW(), parts, float(Fraction(0.1) * w + Fraction(1, 1000)), seed)
    by_rows = kept_of(TopW(), parts, w, seed)
    assert by_cost.mask.tolist() == by_rows.mask.tolist()


def test_it_drops_what_saves_time() -> None:
    """Three cheap rows with 1 result stay, because dropping them saves nothing; the expensive one with 2 goes."""
    part = StreamPart(4, matches=np.array([1, 1, 1, 2]), seconds=np.array([0.01, 0.01, 0.01, 1.0]))
    assert CostAwareTopW().shed(part, 1.0, seed=0).mask.tolist() == [True, True, True, False]
    assert TopW().shed(part, 1, seed=0).mask.tolist() == [False, False, False, True]


def test_more_time_never_gives_fewer_results_than_one_row_less() -> None:
    rng = np.random.default_rng(3)
    part = StreamPart(500, matches=rng.integers(0, 50, 500), seconds=rng.choice([0.001, 0.02], 500))
    results = [int(part.matches[CostAwareTopW().shed(part, limit, 1).mask].sum()) for limit in np.linspace(0, 6, 40)]
    assert results[0] == 0
    assert results[-1] == part.matches.sum()
    assert all(later > earlier - 50 for earlier, later in pairwise(results))


@pytest.mark.parametrize("limit", [-0.1, float("nan"), float("inf"), None, True, "1s"], ids=repr)
def test_a_limit_that_is_no_time_is_refused(limit: Any) -> None:
    part = StreamPart(1, matches=np.ones(1, np.int64), seconds=np.ones(1))
    with pytest.raises(InvalidArgument, match=r"seconds is .*; give a finite number"):
        CostAwareTopW().shed(part, limit, seed=0)


def test_seconds_are_asked_for_and_may_have_few_values() -> None:
    with pytest.raises(InvalidArgument, match="cost_aware_top_w needs the seconds"):
        CostAwareTopW().shed(StreamPart(2, matches=np.array([1, 1])), 1, seed=0)
    many = StreamPart(100, matches=np.ones(100, np.int64), seconds=np.arange(100.0))
    with pytest.raises(InvalidArgument, match="seconds has 100 distinct values"):
        CostAwareTopW().shed(many, 1, seed=0)
