"""Costs from runs: exact for exact runs, otherwise nearest and never below zero, against a grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.tuning.calibration.fit import fit_costs


@settings(deadline=None, max_examples=60)
@given(
    costs=st.lists(st.sampled_from([0.0, 1e-9, 3e-8, 2e-4]), min_size=3, max_size=3),
    seed=st.integers(0, 1000),
)
def test_costs_that_explain_all_runs_are_found(costs: list[float], seed: int) -> None:
    work = np.random.default_rng(seed).integers(1, 10**6, (8, 3)).astype(float)
    seconds = work @ np.array(costs) if any(costs) else np.full(8, 1.0)
    found = fit_costs(work, seconds)
    if any(costs):
        assert work @ found == pytest.approx(seconds, rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000))
def test_no_other_costs_are_nearer(seed: int) -> None:
    """Also where the best without a bound would be below zero."""
    random = np.random.default_rng(seed)
    work, seconds = random.random((6, 2)), random.random(6) + 0.1
    found = fit_costs(work, seconds)
    assert np.all(found >= 0)

    def error(costs: np.ndarray) -> float:
        return float(np.sum((work @ costs / seconds - 1) ** 2))

    grid = [np.array([x, y]) for x in np.linspace(0, 4, 81) for y in np.linspace(0, 4, 81)]
    assert error(found) <= min(map(error, grid)) + 1e-9


def test_too_few_runs_and_runs_without_time_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="1 runs and 1 times for 2 kinds"):
        fit_costs(np.ones((1, 2)), np.ones(1))
    with pytest.raises(InvalidArgument, match="no time above 0"):
        fit_costs(np.ones((2, 2)), np.array([1.0, 0.0]))


def test_usual_costs_decide_between_kinds_that_always_come_together() -> None:
    """Twice as slow a machine, where runs cannot tell the first two kinds apart."""
    work = np.array([[10.0, 10.0, 1.0], [20.0, 20.0, 5.0], [5.0, 5.0, 9.0]])
    usual = np.array([1.0, 3.0, 10.0])
    assert fit_costs(work, work @ (2 * usual), usual) == pytest.approx(2 * usual)
    far = fit_costs(work, work @ np.array([2.0, 6.0, 60.0]), usual)
    assert work @ far == pytest.approx(work @ np.array([2.0, 6.0, 60.0]), rel=0.15)
    assert np.all(far > 0)


def test_time_known_to_be_spent_elsewhere_is_left_out() -> None:
    work, elsewhere = np.array([[1.0, 4.0], [2.0, 1.0], [5.0, 5.0]]), np.array([3.0, 0.0, 20.0])
    costs = np.array([2.0, 7.0])
    assert fit_costs(work, work @ costs + elsewhere, known_s=elsewhere) == pytest.approx(costs)
