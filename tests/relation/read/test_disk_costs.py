"""Costs of requests: their sums, and their fit to durations."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.relation import DiskCosts


def test_large_requests_that_are_faster_cost_nothing_per_byte() -> None:
    fit = DiskCosts.fitted([(4096, 2e-4), (1 << 20, 1e-4)])
    assert fit.transfer_s_per_byte == 0
    assert 1e-4 < fit.seek_s < 2e-4


@given(
    points=st.lists(st.tuples(st.integers(0, 1 << 22), st.floats(1e-6, 1)), min_size=1, max_size=8),
    other_seek_s=st.floats(0, 2),
    other_byte_s=st.floats(0, 1e-6),
)
def test_no_other_costs_are_nearer_to_the_requests(
    points: list[tuple[int, float]], other_seek_s: float, other_byte_s: float
) -> None:
    """Among non-negative costs: some anywhere, and some close by."""

    def error(costs: DiskCosts) -> float:
        return sum((costs.request_s(nbytes, 1) / seconds - 1) ** 2 for nbytes, seconds in points)

    fit = DiskCosts.fitted(points)
    others = [DiskCosts(other_seek_s, other_byte_s)]
    others += [DiskCosts(fit.seek_s * a, fit.transfer_s_per_byte * b) for a in (0, 0.99, 1.01) for b in (0, 0.99, 1.01)]
    assert all(error(fit) <= error(other) * (1 + 1e-9) + 1e-9 for other in others)


@given(seek_s=st.floats(0, 1e-2), byte_s=st.floats(1e-12, 1e-6), sizes=st.sets(st.integers(0, 1 << 24), min_size=2))
def test_the_costs_of_exact_requests_are_found(seek_s: float, byte_s: float, sizes: set[int]) -> None:
    assume(seek_s > 0 or 0 not in sizes)  # a request that took no time tells nothing
    fit = DiskCosts.fitted((nbytes, seek_s + byte_s * nbytes) for nbytes in sizes)
    for nbytes in sizes:
        assert fit.request_s(nbytes, 1) == pytest.approx(seek_s + byte_s * nbytes, rel=1e-4)


def test_requests_that_took_no_time_tell_nothing() -> None:
    assert DiskCosts.fitted([]) == DiskCosts.fitted([(8192, 0.0)]) == DiskCosts(seek_s=0.0)


@pytest.mark.parametrize("costs", [(-1.0,), (0.0, -1e-9), (0.0, 0.0, float("nan")), (float("inf"),)])
def test_times_are_numbers_from_zero_on(costs: tuple[float, ...]) -> None:
    with pytest.raises(InvalidArgument, match="negative or not finite"):
        DiskCosts(*costs)
