"""Costs of requests: what they add up to, and how they are told from durations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.relation import DiskCosts
from semistream.relation.disk_costs import RequestTimes


@given(
    seek_s=st.floats(1e-6, 1e-2),
    byte_s=st.floats(1e-11, 1e-7),
    small=st.integers(512, 1 << 16),
    times=st.integers(4, 200),
    seed=st.integers(0, 1000),
)
def test_line_is_found_in_spite_of_stragglers(seek_s: float, byte_s: float, small: int, times: int, seed: int) -> None:
    """A third of the requests meet a busy disk and take up to a hundred times as long."""
    rng, times_seen = np.random.default_rng(seed), RequestTimes()
    for i in range(96):
        nbytes = small * (1 if i % 2 else times)
        slow = 1 + 99 * rng.random() if i % 3 == 0 else 1
        times_seen.add(nbytes, slow * (seek_s + byte_s * nbytes))
    fit = times_seen.fit()
    assert fit is not None
    assert fit.request_s(small, 1) == pytest.approx(seek_s + byte_s * small, rel=1e-6)
    assert fit.request_s(small * times, 1) == pytest.approx(seek_s + byte_s * small * times, rel=1e-6)


def test_no_line_through_too_few_or_too_similar_requests() -> None:
    times = RequestTimes()
    assert times.fit() is None
    for _ in range(50):
        times.add(4096, 1e-4)
        times.add(8192, 1.1e-4)
    assert times.fit() is None
    for _ in range(7):
        times.add(1 << 20, 1e-3)
    assert times.fit() is None
    times.add(1 << 20, 1e-3)
    fit = times.fit()
    assert fit is not None
    assert (fit.request_s(4096, 1), fit.request_s(1 << 20, 1)) == pytest.approx((1e-4, 1e-3))


def test_large_requests_that_are_faster_cost_nothing_per_byte() -> None:
    times = RequestTimes()
    for _ in range(10):
        times.add(4096, 2e-4)
        times.add(1 << 20, 1e-4)
    assert times.fit() == DiskCosts(seek_s=2e-4)


def test_only_the_last_durations_count() -> None:
    times = RequestTimes()
    for seconds in (9.0, 1.0):
        for _ in range(100):
            times.add(0, seconds)
            times.add(1000, 2 * seconds)
    assert times.fit() == DiskCosts(seek_s=1.0, transfer_s_per_byte=0.001)


@pytest.mark.parametrize("costs", [(-1.0,), (0.0, -1e-9), (0.0, 0.0, float("nan")), (float("inf"),)])
def test_times_are_numbers_from_zero_on(costs: tuple[float, ...]) -> None:
    with pytest.raises(InvalidArgument, match="negative or no number"):
        DiskCosts(*costs)
