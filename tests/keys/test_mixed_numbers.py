"""Integers beside decimals and floats, signed beside uint64: compared as the numbers they are, in plain Python too."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import KeyTypeError
from semistream.keys import KeyCodec
from semistream.keys.comparison import compared, within
from semistream.keys.key_types import comparable
from tests.keys.key_oracle import DECIMALS, GROUPS, SIGNED, UNSIGNED
from tests.keys.test_key_comparisons import DISTANCES, OPERATORS, check, columns, crossed

INTEGERS = [*SIGNED, *UNSIGNED, pa.uint64()]
KINDS = {"integer": INTEGERS, "decimal": DECIMALS, "float": GROUPS["float"]}
MIXED = [("integer", kind) for kind in KINDS] + [("decimal", "integer"), ("float", "integer")]
Side = tuple[pa.Array, list[Any]]


@st.composite
def sides(draw: st.DrawFn, kinds: tuple[str, str]) -> list[Side]:
    """Columns of the two kinds, and what they mean: (0, a number), (1, 0) for NaN, None for null."""
    made = []
    for kind in kinds:
        array, means = draw(columns(kind, draw(st.sampled_from(KINDS[kind]))))
        made.append((array, [mean if mean is None or isinstance(mean, tuple) else (0, mean) for mean in means]))
    return made


@pytest.mark.parametrize("kinds", MIXED, ids="-".join)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_order_and_equality_are_those_of_the_numbers(kinds: tuple[str, str], data: st.DataObject) -> None:
    (left, s_means), (right, r_means) = data.draw(sides(kinds))
    pairs = [(s, r) for s in s_means for r in r_means]
    for sign, holds in OPERATORS.items():
        expected = [s is not None and r is not None and bool(holds(s, r)) for s, r in pairs]
        check(compared(left.type, right.type, sign), left, right, expected)  # type: ignore[arg-type]
    codec = KeyCodec.of(["r"], [right.type])
    codec.accept(["s"], [left.type])
    expected = [s is not None and s == r for s, r in pairs]
    assert codec.equal(*([side] for side in crossed(left, right))).tolist() == expected
    for names in (["r"], ["r", "q"]):
        wide = KeyCodec.of(names, [right.type] * len(names))
        (s_codes, s_can), (r_codes, r_can) = (wide.encode([side] * len(names)) for side in (left, right))
        same = s_codes[:, None] == r_codes
        same &= np.True_ if s_can is None else s_can[:, None]
        same &= np.True_ if r_can is None else r_can
        assert same.ravel().tolist() == expected


@pytest.mark.parametrize("kinds", [("integer", "integer"), *MIXED[1:2], *MIXED[3:4]], ids="-".join)
@settings(deadline=None, max_examples=40)
@given(data=st.data(), distance=DISTANCES, strict=st.booleans())
def test_distances_are_exact(kinds: tuple[str, str], data: st.DataObject, distance: Fraction, strict: bool) -> None:
    (left, s_means), (right, r_means) = data.draw(sides(kinds))
    apart = [None if s is None or r is None else abs(Fraction(s[1]) - Fraction(r[1])) for s in s_means for r in r_means]
    distance = data.draw(st.sampled_from([distance, *(each for each in apart if each is not None)]))
    expected = [each is not None and (each < distance if strict else each <= distance) for each in apart]
    check(within(left.type, right.type, distance, is_duration=False, strict=strict), left, right, expected)


@pytest.mark.parametrize("kinds", [("integer", "float"), ("float", "integer")], ids="-".join)
@settings(deadline=None, max_examples=40)
@given(data=st.data(), strict=st.booleans())
def test_distances_to_floats_are_those_of_float64(kinds: tuple[str, str], data: st.DataObject, strict: bool) -> None:
    (left, _), (right, _) = data.draw(sides(kinds))
    s, r = (np.array([np.nan if v is None else v for v in side.to_pylist()], np.float64) for side in (left, right))
    with np.errstate(all="ignore"):
        apart = np.abs(s[:, None] - r).ravel()
    limit = data.draw(st.sampled_from([0.0, 0.5, 1e18, *(float(each) for each in apart if np.isfinite(each))]))
    expected = (apart < limit if strict else apart <= limit).tolist()
    check(within(left.type, right.type, Fraction(limit), is_duration=False, strict=strict), left, right, expected)


def test_neighbours_that_float64_confuses_are_told_apart() -> None:
    whole = pa.array([2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
    floats = pa.array([2.0**53, 2.0**53, 2.0**63, -(2.0**63)])
    assert KeyCodec.of(["r"], [pa.float64()]).equal([whole], [floats]).tolist() == [True, False, False, True]
    assert KeyCodec.of(["r"], [pa.int64()]).equal([floats], [whole]).tolist() == [True, False, False, True]
    assert compared(pa.int64(), pa.float64(), ">").holds(whole, floats).tolist() == [False, True, False, False]
    less = compared(pa.float64(), pa.uint64(), "<").ranges(pa.array([-0.5, float("nan")]))
    assert less.possible is not None
    assert less.possible.tolist() == [True, False]


def test_decimals_and_floats_stay_apart() -> None:
    for mine, other in ((pa.decimal128(5, 2), pa.float64()), (pa.float32(), pa.decimal64(5, 2))):
        assert not comparable(mine, other)
        with pytest.raises(KeyTypeError, match="Cast one side"):
            KeyCodec.of(["k"], [mine]).accept(["k"], [other])
