"""OPTDP, NDG and ADG: equal to brute force and to the paper's dynamic program, or within the bounds it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.windows import TruncatedJoin, adg, ndg, optdp
from tests.windows.truncation.static_oracle import (
    Component,
    best_by_brute_force,
    count_results,
    edges_retained,
    plain_program,
    plain_program_of_both,
    relations,
)

sides = st.integers(1, 3)
few = st.lists(st.tuples(sides, sides), max_size=3)
many = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=8)
alone = st.tuples(st.integers(0, 1), st.integers(0, 1))


def check(join: TruncatedJoin, left: np.ndarray, right: np.ndarray, retain: int | Component) -> None:
    """It has as many rows as asked, each once, and the results that it says."""
    for rows, column in ((join.left, left), (join.right, right)):
        assert (np.diff(rows) > 0).all()
        assert not rows.size or (rows[0] >= 0 and rows[-1] < len(column))
    sizes = (join.left.size, join.right.size)
    assert sizes == retain if isinstance(retain, tuple) else sum(sizes) == retain
    assert join.results == count_results(left, right, join.left, join.right)
    everything = np.arange(len(left)), np.arange(len(right))
    assert join.exact == count_results(left, right, *everything)
    assert join.lost == join.exact - join.results


@settings(deadline=None, max_examples=25)
@given(few, alone, st.data())
def test_optdp_is_the_best_of_all_choices(components: list[Component], rest: Component, data: st.DataObject):
    left, right = relations(components, rest)
    k = data.draw(st.integers(0, len(left) + len(right)))
    join = optdp(left, right, retain=k)
    check(join, left, right, k)
    assert join.results == best_by_brute_force(left, right, k)
    assert optdp(left, right, drop=len(left) + len(right) - k).results == join.results


@settings(deadline=None, max_examples=25)
@given(few, alone, st.data())
def test_optdp_of_each_side_is_the_best_of_all_choices(
    components: list[Component], rest: Component, data: st.DataObject
):
    left, right = relations(components, rest)
    k = data.draw(st.tuples(st.integers(0, len(left)), st.integers(0, len(right))))
    join = optdp(left, right, retain=k)
    check(join, left, right, k)
    assert join.results == best_by_brute_force(left, right, k)
    assert optdp(left, right, drop=(len(left) - k[0], len(right) - k[1])).results == join.results


@settings(deadline=None, max_examples=100)
@given(many, st.data())
def test_optdp_equals_the_papers_dynamic_program(components: list[Component], data: st.DataObject):
    left, right = relations(components)
    k = data.draw(st.integers(0, len(left) + len(right)))
    assert optdp(left, right, retain=k).results == plain_program(components, k)


@settings(deadline=None, max_examples=60)
@given(many, st.data())
def test_optdp_of_each_side_equals_the_papers_dynamic_program(components: list[Component], data: st.DataObject):
    left, right = relations(components)
    k = data.draw(st.tuples(st.integers(0, len(left)), st.integers(0, len(right))))
    join = optdp(left, right, retain=k)
    check(join, left, right, k)
    assert join.results == plain_program_of_both(components, *k)


@given(st.integers(1, 12), st.integers(1, 12))
def test_what_a_component_retains_is_convex(m: int, n: int):
    steps = np.diff([edges_retained(m, n, p) for p in range(m + n + 1)])
    assert (np.diff(steps) >= 0).all()


@settings(deadline=None, max_examples=150)
@given(many, st.data())
def test_ndg_loses_at_most_twice_the_optimum(components: list[Component], data: st.DataObject):
    left, right = relations(components, (2, 1))
    k = data.draw(st.tuples(st.integers(0, len(left)), st.integers(0, len(right))))
    greedy, best = ndg(left, right, retain=k), optdp(left, right, retain=k)
    check(greedy, left, right, k)
    assert best.lost <= greedy.lost <= 2 * best.lost


@settings(deadline=None, max_examples=150)
@given(many, st.data())
def test_adg_is_within_two_of_both_optima(components: list[Component], data: st.DataObject):
    left, right = relations(components, (2, 1))
    k = data.draw(st.integers(0, len(left) + len(right)))
    greedy, best = adg(left, right, retain=k), optdp(left, right, retain=k)
    check(greedy, left, right, k)
    assert best.lost <= greedy.lost <= 2 * best.lost
    assert greedy.results <= best.results <= 2 * greedy.results


def test_the_dual_half_of_theorem_1_does_not_hold():
    """The tuples with the most partners are each alone with theirs: few results, though few are lost."""
    left, right = relations([(1, 100)] * 10 + [(100, 1)] * 10 + [(10, 10)])
    greedy, best = ndg(left, right, retain=(10, 10)), optdp(left, right, retain=(10, 10))
    assert (greedy.results, best.results) == (10, 100)
    assert greedy.lost <= 2 * best.lost


def test_the_papers_experiment_is_within_half_a_percent():
    """WINDOW 5.1.1: 50 K tuples, 1 K components, 5 K retained, Zipf sizes drawn on their own for both relations."""
    rng = np.random.default_rng(0)
    weights = np.arange(1, 1001) ** -0.5
    left, right = (rng.choice(1000, 50_000, p=rng.permutation(weights) / weights.sum()) for _ in range(2))
    greedy, best = adg(left, right, retain=5000), optdp(left, right, retain=5000)
    assert 0.995 * best.results <= greedy.results <= best.results


def test_keys_of_any_kind_and_nulls():
    left = pa.table({"a": ["x", "x", None, "y"], "b": [1, 1, 1, None]})
    right = pa.table({"a": ["x", "y", None], "b": [1, None, 1]})
    join = optdp(left, right, retain=3)
    assert (join.left.tolist(), join.right.tolist(), join.results, join.exact) == ([0, 1], [0], 2, 2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda a: optdp(a, a), "give one of them"),
        (lambda a: optdp(a, a, retain=1, drop=1), "give one of them"),
        (lambda a: optdp(a, a, retain=7), "from 0 to 6"),
        (lambda a: optdp(a, a, drop=-1), "drop is -1"),
        (lambda a: optdp(a, a, retain=1.5), "1.5"),
        (lambda a: optdp(a, a, retain=(1, 2, 3)), "or two"),
        (lambda a: optdp(a, a, retain=(4, 1)), "from 0 to 3"),
        (lambda a: ndg(a, a, retain=2), "use adg"),
        (lambda a: adg(a, a, retain=(1, 1)), "use ndg"),
    ],
)
def test_what_cannot_work_is_refused(call: Any, says: str):
    with pytest.raises(InvalidArgument, match=says):
        call(np.array([1, 2, 3]))


def test_tables_that_do_not_fit_are_refused_before_they_are_made():
    keys = np.repeat(np.arange(200), 100)
    with pytest.raises(InvalidArgument, match="use ndg"):
        optdp(keys, keys, retain=(10_000, 10_000))
