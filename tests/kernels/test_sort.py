"""Codes are sorted, and rows with equal codes keep their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from semistream.kernels.sort import CodeSorter, order_codes, sort_codes

codes = st.one_of(
    hnp.arrays(np.int64, st.integers(0, 300), elements=st.integers(-(2**63), 2**63 - 1)),
    hnp.arrays(np.int64, st.integers(0, 300), elements=st.integers(-5, 5)),
    hnp.arrays(np.int64, st.integers(0, 300), elements=st.integers(2**40, 2**40 + 70_000)),
)


@settings(deadline=None)
@given(codes=codes)
def test_it_is_a_stable_sort(codes: np.ndarray) -> None:
    ordered, order = sort_codes(codes)
    np.testing.assert_array_equal(order, np.argsort(codes, kind="stable"))
    np.testing.assert_array_equal(ordered, np.sort(codes))


@pytest.mark.parametrize("ties", [2, 63, 64, 65, 500])
def test_codes_that_differ_in_their_lower_bits_alone(ties: int) -> None:
    generator = np.random.default_rng(ties)
    codes = np.concatenate([generator.permutation(ties), [2**62, -(2**62)], generator.integers(-9, 9, 100) << 50])
    np.testing.assert_array_equal(CodeSorter(codes.size).order(codes), np.argsort(codes, kind="stable"))


def test_it_says_when_too_many_are_alike() -> None:
    rows = 200
    codes = np.append(np.arange(rows)[::-1], 2**62)
    room = np.empty(codes.size, np.uint64), np.empty(codes.size, np.uint64), np.empty(codes.size, np.int32)
    assert not order_codes(codes, *room)
    assert order_codes(codes[:rows], *(array[:rows] for array in room))


def test_a_sorter_can_be_used_again_for_fewer() -> None:
    sorter = CodeSorter(10)
    assert sorter.order(np.array([3, 1, 2])).tolist() == [1, 2, 0]
    assert sorter.order(np.array([2, 1])).tolist() == [1, 0]
    assert sorter.order(np.empty(0, np.int64)).tolist() == []
