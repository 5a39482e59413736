"""Comparisons against exact arithmetic in plain Python, over every accepted pair of types."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.keys import KeyCodec
from semistream.keys.comparison import Comparison, compared, within
from semistream.keys.ranges import GREATEST, LEAST
from tests.keys.key_oracle import GROUPS, array_of, meaning, raw_values

OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "!=": operator.ne}
DISTANT = [group for group in GROUPS if group not in ("boolean", "string", "binary", "float")]
DISTANCES = st.one_of(
    st.sampled_from([Fraction(0), Fraction(1), Fraction(5, 2), Fraction(1, 10**9), Fraction(86_400), Fraction(2**63)]),
    st.sampled_from([Fraction(10**k) for k in (3, 9, 18, 19, 30, 76)]),
    st.fractions(0, 2**65),
)


@st.composite
def columns(draw: st.DrawFn, group: str, type_: pa.DataType) -> tuple[pa.Array, list[Any]]:
    """A column, sliced out of a longer one and sometimes dictionary-encoded, and its exact meanings."""
    raw = draw(st.lists(raw_values(group, type_) | st.none(), min_size=1, max_size=6))
    array = array_of([raw[0], *raw], type_)
    if draw(st.integers(0, 4)) == 0:
        array = pa.DictionaryArray.from_arrays(np.arange(len(array), dtype=np.int32), array)
    return array.slice(1), [meaning(value, type_) for value in raw]


def crossed(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    i, j = np.divmod(np.arange(len(left) * len(right)), len(right))
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}  # take has no kernel for views
    return (
        left.cast(plain.get(left.type, left.type)).take(pa.array(i)),
        right.cast(plain.get(right.type, right.type)).take(pa.array(j)),
    )


def check(comparison: Comparison, left: pa.Array, right: pa.Array, expected: list[bool]) -> None:
    assert comparison.holds(*crossed(left, right)).tolist() == expected
    if comparison.has_ranges and KeyCodec.of(["r"], [right.type]).ordered:
        codes, possible = KeyCodec.of(["r"], [right.type]).encode([right])
        ranges = comparison.ranges(left)
        can = np.ones(len(left), bool) if ranges.possible is None else ranges.possible
        inside = (ranges.low[:, None] <= codes) & (codes <= ranges.last[:, None]) & can[:, None]
        inside &= np.ones(len(right), bool) if possible is None else possible
        missed = np.array(expected) & ~inside.ravel()
        assert not missed.any()
        if comparison.ranges_are_exact:
            assert inside.ravel().tolist() == expected
        assert (ranges.low <= ranges.last)[can].all()


@pytest.mark.parametrize("group", GROUPS)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_order_is_that_of_the_exact_values(group: str, data: st.DataObject) -> None:
    stream, relation = (data.draw(st.sampled_from(GROUPS[group])) for _ in range(2))
    left, s_means = data.draw(columns(group, stream))
    right, r_means = data.draw(columns(group, relation))
    for sign, holds in OPERATORS.items():
        expected = [s is not None and r is not None and bool(holds(s, r)) for s in s_means for r in r_means]
        check(compared(left.type, right.type, sign), left, right, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", DISTANT)
@settings(deadline=None, max_examples=25)
@given(data=st.data(), distance=DISTANCES, strict=st.booleans())
def test_distances_are_exact(group: str, data: st.DataObject, distance: Fraction, strict: bool) -> None:
    stream, relation = (data.draw(st.sampled_from(GROUPS[group])) for _ in range(2))
    left, s_means = data.draw(columns(group, stream))
    right, r_means = data.draw(columns(group, relation))
    is_duration = group not in ("integer", "unsigned", "decimal")
    if data.draw(st.booleans()):  # the distance of two present values, and one next to it
        s, r = (data.draw(st.sampled_from(means)) for means in (s_means, r_means))
        if s is not None and r is not None:
            distance = abs(Fraction(s) - Fraction(r)) * (86_400 if group == "date" else 1)
            distance = max(Fraction(0), distance + data.draw(st.sampled_from([0, 1, -1])) * Fraction(1, 10**40))
    limit = distance / 86_400 if group == "date" else distance
    near = operator.lt if strict else operator.le
    expected = [
        s is not None and r is not None and near(abs(Fraction(s) - Fraction(r)), limit)
        for s in s_means
        for r in r_means
    ]
    check(within(left.type, right.type, distance, is_duration=is_duration, strict=strict), left, right, expected)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), strict=st.booleans())
def test_distances_of_floats_are_those_of_float64_arithmetic(data: st.DataObject, strict: bool) -> None:
    stream, relation = (data.draw(st.sampled_from(GROUPS["float"])) for _ in range(2))
    left, _ = data.draw(columns("float", stream))
    right, _ = data.draw(columns("float", relation))
    s, r = (
        np.array([np.nan if value is None else value for value in side.to_pylist()], np.float64)
        for side in (left, right)
    )
    with np.errstate(all="ignore"):
        apart = np.abs(s[:, None] - r[None, :])
    there = [float(value) for value in apart.ravel() if np.isfinite(value)]
    limit = data.draw(st.one_of(st.floats(0, 1e308), st.sampled_from([0.0, 5e-324, 0.1, 1e308, *there])))
    expected = (apart < limit if strict else apart <= limit).ravel().tolist()
    comparison = within(left.type, right.type, Fraction(limit), is_duration=False, strict=strict)
    check(comparison, left, right, expected)


def test_a_distance_that_no_float_holds_takes_in_all_but_nan() -> None:
    numbers = pa.array([float("-inf"), -1e308, 0.0, float("inf"), float("nan")])
    comparison = within(numbers.type, numbers.type, Fraction(10**400), is_duration=False, strict=False)
    values = numbers.to_numpy()
    with np.errstate(all="ignore"):
        expected = (np.abs(values[:, None] - values) <= np.inf).ravel().tolist()
    check(comparison, numbers, numbers, expected)


def test_values_beyond_the_relations_type_compare_as_numbers() -> None:
    stream = pa.array([2**40, -(2**40)])
    assert compared(pa.int64(), pa.int32(), ">").ranges(stream).last.tolist()[0] == 2**40 - 1
    assert compared(pa.int64(), pa.int32(), ">").holds(stream, pa.array([5, 5], pa.int32())).tolist() == [True, False]
    seconds = pa.array([2**62, -(2**62), 0], pa.int64()).view(pa.timestamp("s"))
    less = compared(pa.timestamp("s"), pa.timestamp("ns"), "<=").ranges(seconds)
    assert less.possible is not None
    assert less.possible.tolist() == [False, True, True]
    assert less.low.tolist()[1:] == [LEAST, 0]
    assert set(less.last.tolist()) == {GREATEST}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: compared(pa.decimal128(5, 2), pa.float64(), "<"), KeyTypeError, "cannot be compared without loss"),
        (lambda: _within_one(pa.string(), is_duration=False), KeyTypeError, "string have no distance"),
        (lambda: _within_one(pa.int32(), is_duration=True), InvalidArgument, "int32 must be a number"),
        (lambda: _within_one(pa.date32(), is_duration=False), InvalidArgument, "must be a duration, as in"),
    ],
)
def test_what_has_no_order_or_distance_is_refused(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def _within_one(type_: pa.DataType, *, is_duration: bool) -> Comparison:
    return within(type_, type_, Fraction(1), is_duration=is_duration, strict=False)
