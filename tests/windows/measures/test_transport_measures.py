"""EMD and MAC against brute force over all moves and covers, and the statements of WINDOW 2.2 on subsets."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.windows import earth_movers_distance, match_and_compare
from semistream.windows.measures.transport import euclidean

numbers = st.lists(st.integers(0, 9), min_size=1, max_size=4)


def table(values: list[int]) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


@settings(deadline=None, max_examples=80)
@given(numbers, st.lists(st.integers(0, 9), max_size=2))
def test_emd_is_the_least_work_of_all_moves(values: list[int], more: list[int]):
    x, y = values, [9 - value for value in values] + more
    least = min(sum(abs(a - b) for a, b in zip(x, chosen, strict=True)) for chosen in permutations(y, len(x)))
    assert earth_movers_distance(table(x), table(y)) == pytest.approx(least)


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_emd_on_a_line_is_that_of_sorted_values(values: list[int], random: object):
    """For as many rows on both sides, the closed form; and 0 for a subset."""
    other = [value * 2 % 37 for value in values]
    random.shuffle(other)  # type: ignore[attr-defined]
    assert earth_movers_distance(table(values), table(other)) == pytest.approx(
        np.abs(np.sort(values) - np.sort(other)).sum()
    )
    assert earth_movers_distance(table(values[::2]), table(values)) == 0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.lists(st.integers(0, 9), min_size=1, max_size=3))
def test_mac_takes_the_cheapest_cover_with_the_fewest_edges(x: list[int], y: list[int]):
    best = (np.inf, 0)
    for chosen in product((0, 1), repeat=len(x) * len(y)):
        cover = np.array(chosen).reshape(len(x), len(y))
        if cover.any(axis=0).all() and cover.any(axis=1).all():
            weight = sum(abs(x[i] - y[j]) for i, j in zip(*np.nonzero(cover), strict=True))
            best = min(best, (weight, int(cover.sum())))
    seen = {}

    def combine(weights: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
        seen.update(edges=weights.size, left=left, right=right)
        return float(weights.sum())

    assert match_and_compare(table(x), table(y), combine=combine) == pytest.approx(best[0])
    assert seen["edges"] == best[1] == seen["left"].sum() == seen["right"].sum()
    assert (seen["left"] >= 1).all()
    assert (seen["right"] >= 1).all()
    assert match_and_compare(table(x), table(y)) == pytest.approx(best[0] + 2 * best[1] - len(x) - len(y))


def test_equal_tables_have_no_distance_and_none_to_an_empty_one():
    one = table([1, 2, 2])
    assert match_and_compare(one, one) == earth_movers_distance(one, one) == 0
    assert match_and_compare(table([]), one) == np.inf
    assert match_and_compare(table([]), table([])) == earth_movers_distance(table([]), one) == 0


def test_the_default_distance():
    one = pa.table({"x": [0.0, None], "day": pa.array([0, 0], pa.date32()), "name": ["a", None]})
    other = pa.table({"x": [3.0, None], "day": pa.array([4, 0], pa.date32()), "name": ["a", "b"]})
    assert euclidean(one, other) == pytest.approx(np.array([[5.0, np.sqrt(2)], [np.sqrt(18), 1.0]]))


def test_any_distance():
    def same(one: pa.Table, other: pa.Table) -> np.ndarray:
        return np.full((one.num_rows, other.num_rows), 0.1)

    assert earth_movers_distance(table([1, 2]), table([1, 2, 3]), same) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: earth_movers_distance(table([1, 2]), table([1])), "Swap the arguments"),
        (lambda: earth_movers_distance(table([1]), table([1]), lambda a, b: np.full((1, 1), -1.0)), "at least 0"),
        (lambda: earth_movers_distance(table([1]), table([1]), lambda a, b: np.zeros(3)), r"shape \(3,\)"),
        (lambda: match_and_compare(table(list(range(4000))), table(list(range(4000)))), "compare samples"),
    ],
)
def test_what_cannot_work_is_refused(call: object, says: str):
    with pytest.raises(InvalidArgument, match=says):
        call()  # type: ignore[operator]
