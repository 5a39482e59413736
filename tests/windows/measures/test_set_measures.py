"""Set measures against Python's multisets, and the identities of WINDOW 2.2 for subsets."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.windows import cosine, dice, jaccard, matching, max_subset_error, overlap, symmetric_difference

rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None])), max_size=12)
SCHEMA = pa.schema([("key", pa.int64()), ("name", pa.string())])


def table(pairs: list[tuple[int, str | None]]) -> pa.Table:
    return pa.table({"key": [key for key, _ in pairs], "name": [name for _, name in pairs]}, schema=SCHEMA)


@settings(deadline=None)
@given(rows, rows)
def test_measures_equal_those_of_multisets(x: list[tuple[int, str | None]], y: list[tuple[int, str | None]]):
    a, b = Counter(x), Counter(y)
    both, union = (a & b).total(), (a | b).total()
    one, other = table(x), table(y)
    assert matching(one, other) == both
    assert symmetric_difference(one, other) == ((a - b) + (b - a)).total()
    if x and y:
        assert dice(one, other) == 2 * both / (len(x) + len(y))
        assert jaccard(one, other) == both / union
        assert cosine(one, other) == pytest.approx(both / math.sqrt(len(x) * len(y)))
        assert overlap(one, other) == both / min(len(x), len(y))


@settings(deadline=None)
@given(rows, st.data())
def test_for_subsets_they_all_say_the_same(y: list[tuple[int, str | None]], data: st.DataObject):
    """The symmetric difference is the number of missing rows; the others grow with the subset; overlap is 1."""
    flags = st.lists(st.booleans(), min_size=len(y), max_size=len(y))
    first, second = ([row for row, chosen in zip(y, data.draw(flags), strict=True) if chosen] for _ in range(2))
    exact = table(y)
    for x in (first, second):
        assert max_subset_error(table(x), exact) == symmetric_difference(table(x), exact) == len(y) - len(x)
        assert overlap(table(x), exact) == 1
    if len(first) < len(second):
        for measure in (matching, dice, jaccard, cosine):
            assert measure(table(first), exact) < measure(table(second), exact)


def test_empty_tables():
    nothing, something = table([]), table([(1, "a")])
    for measure in (dice, jaccard, cosine, overlap):
        assert measure(nothing, nothing) == 1
    for measure in (dice, jaccard, cosine):
        assert measure(nothing, something) == measure(something, nothing) == 0
    assert max_subset_error(nothing, something) == 1


def test_floats_compare_as_everywhere():
    one = pa.table({"x": [0.0, math.nan]})
    assert matching(one, pa.table({"x": [-0.0, math.nan]})) == 2


def test_max_subset_is_for_subsets():
    with pytest.raises(InvalidArgument, match="1 of the 2 rows are not in the exact result"):
        max_subset_error(table([(1, "a"), (1, "a")]), table([(1, "a"), (2, "a")]))


def test_tables_with_other_columns_are_refused():
    with pytest.raises(InvalidArgument, match="select the same"):
        jaccard(pa.table({"a": [1]}), pa.table({"b": [1]}))
