"""Minimum-cost flow: graphs beyond the solver's limits are refused, and costs keep their digits."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.errors import InvalidArgument, MissingPackage, SemistreamError
from semistream.windows import optimal_offline
from semistream.windows.optimum.min_cost_flow import least_cost_flow, whole_costs


@given(st.lists(st.integers(-(2**20), 2**20), min_size=1), st.integers(-20, 20))
def test_multiples_of_a_power_of_two_stay_exact(whole: list[int], exponent: int):
    values = np.array(whole) * 2.0**exponent
    costs, worth = whole_costs(values, nodes=10**6)
    assert (costs * worth).tolist() == values.tolist()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_other_numbers_change_by_little(given_values: list[float]):
    values = np.array(given_values)
    costs, worth = whole_costs(values, nodes=10**6)
    assert (np.abs(costs * worth - values) <= max(np.abs(values).max() * 2.0**-36, 2.0**-1022)).all()
    assert np.abs(costs).max() * 10**6 < 2**62


def test_weights_too_large_are_refused():
    with pytest.raises(InvalidArgument, match="Divide all weights"):
        optimal_offline(
            np.zeros(9, np.int64), np.zeros(9, np.int64), window=3, memory=2, val=lambda a, b: np.full(len(a), 2**60)
        )


def test_a_graph_without_a_solution_is_an_error():
    one, two = np.array([0], np.int32), np.array([1], np.int32)
    with pytest.raises(InvalidArgument, match="INFEASIBLE"):
        least_cost_flow(one, two, np.array([1]), np.array([0]), np.array([2, -2]))


def test_without_the_solver_there_is_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ortools.graph.python.min_cost_flow", None)
    with pytest.raises(MissingPackage, match=r"pip install 'semistream\[windows\]'") as raised:
        optimal_offline(np.array([1, 1]), np.array([1, 1]), window=3, memory=2)
    assert isinstance(raised.value, SemistreamError)
