"""Memory for joins in a row: against all ways to share it out, where the curve of each is known."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import BudgetError
from semistream.tuning.memory_shares import share_memory

PART = 1000


@settings(deadline=None, max_examples=25)
@given(
    weights=st.lists(st.floats(0.01, 100), min_size=2, max_size=3),
    powers=st.lists(st.sampled_from([0.3, 1.0, 1.7]), min_size=3, max_size=3),
    least=st.lists(st.integers(0, 40), min_size=3, max_size=3),
)
def test_no_other_way_to_share_is_faster(weights: list[float], powers: list[float], least: list[int]) -> None:
    """Times that are powers of the memory are straight lines in logarithms, so interpolation is exact."""

    def join(i: int):
        return lambda nbytes: weights[i] * nbytes ** -powers[i] if nbytes >= least[i] * PART and nbytes else math.inf

    joins, total = [join(i) for i in range(len(weights))], 128 * PART
    shares = share_memory(joins, total)
    assert sum(shares) <= total
    taken = sum(each(share) for each, share in zip(joins, shares, strict=True))
    steps = range(1, 127, 3 if len(weights) == 3 else 1)
    for some in product(steps, repeat=len(weights) - 1):
        if sum(some) < 128:
            ways = [*some, 128 - sum(some)]
            other = sum(each(parts * PART) for each, parts in zip(joins, ways, strict=True))
            assert taken <= other * 1.02


def test_one_join_has_all() -> None:
    assert share_memory([lambda nbytes: 1.0], 77) == [77]


def test_too_little_for_all_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"100 kB, too little for 2 joins"):
        share_memory([lambda nbytes: 1.0 if nbytes > 60_000 else math.inf] * 2, 100_000)


@given(fits=st.integers(2, 100), slow=st.floats(1e-6, 1e-4))
def test_a_join_gets_just_what_it_takes_to_hold_all_of_r(fits: int, slow: float) -> None:
    """One join is fast from some size on; the other gains from all remaining memory."""
    shares = share_memory([lambda n: 1e-9 if n >= fits * PART else slow, lambda n: slow / 100 * PART / n], 128 * PART)
    assert shares == [fits * PART, (128 - fits) * PART]
