"""OptimalOffline against every schedule, against the paper's recurrence, and the paper's example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from experiments.mesh_loop import top_w_loss
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import BudgetError, InvalidArgument
from semistream.shedding import OfflineSchedule, OptimalOffline
from tests.shedding.naive import every_schedule, printed_recurrence

FIG_8 = [1, 1, 1, 1, 4, 4, 4, 4]


def check(best: OfflineSchedule, matches: list[int], w: int, c_loop: int, first_request: int, *, partial: bool) -> None:
    """The schedule keeps the rules, and loses what it says."""
    values = np.array(matches, np.int64)
    assert best.loss == values[~best.kept].sum()
    request, begin = first_request, 0
    for asked, handed in zip(best.requests.tolist(), best.transfers.tolist(), strict=True):
        assert asked == request
        assert handed >= asked
        packet = int(best.kept[begin:handed].sum())
        assert 0 < packet <= w if partial else packet == w
        request, begin = handed + c_loop, handed
    assert best.kept[begin:].sum() <= w
    assert np.all(best.stalls >= 0)


@settings(deadline=None, max_examples=250)
@given(
    matches=st.lists(st.integers(0, 6), max_size=9),
    w=st.integers(0, 4),
    c_loop=st.integers(1, 6),
    partial=st.booleans(),
    data=st.data(),
)
def test_no_schedule_loses_fewer_results(
    matches: list[int], w: int, c_loop: int, partial: bool, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, c_loop))
    optimum = OptimalOffline(w, c_loop, first_request=first, partial_packets=partial)
    best = optimum.schedule(np.array(matches, np.int64))
    assert best.loss == every_schedule(matches, w, c_loop, first, partial=partial)
    check(best, matches, w, c_loop, first, partial=partial)


@settings(deadline=None, max_examples=60)
@given(
    matches=st.lists(st.integers(0, 50), max_size=60),
    w=st.integers(1, 12),
    c_loop=st.integers(1, 25),
    data=st.data(),
)
def test_it_is_the_recurrence_of_the_paper(matches: list[int], w: int, c_loop: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, c_loop))
    best = OptimalOffline(w, c_loop, first_request=first).schedule(np.array(matches, np.int64))
    assert best.loss == printed_recurrence(matches, w, c_loop, first)
    check(best, matches, w, c_loop, first, partial=False)


def test_figure_8_of_the_paper() -> None:
    """The text has its numbers but not the stream: this is one with which TOPW loses 10 and the optimum 4.

    As the paper tells it, the join is made to wait, so that the last tuples of the stream are in its next packets.
    """
    assert top_w_loss(np.array(FIG_8), w=2, c_loop=4) == 10
    best = OptimalOffline(2, 4, first_request=4).schedule(np.array(FIG_8))
    assert best.loss == 4
    assert best.kept.tolist() == [False] * 4 + [True] * 4
    assert (best.requests.tolist(), best.transfers.tolist(), best.stalls.tolist()) == ([4], [6], [2])


def test_the_dropped_term_of_the_pseudo_code_matters() -> None:
    """While the join is busy and the buffer is full, what comes is lost: line 11 of Fig. 9 forgets that."""
    matches = [1, 1, 5, 5, 5, 5]
    best = OptimalOffline(2, 6, first_request=6).schedule(np.array(matches))
    assert best.loss == 12
    assert every_schedule(matches, 2, 6, 6, partial=False) == 12


def test_a_join_that_takes_packets_that_are_not_full_can_lose_less() -> None:
    matches = [9, 9, 1, 9, 9, 9, 9, 9, 9]
    rules = {"w": 3, "c_loop": 4, "first_request": 2}
    full = OptimalOffline(**rules).schedule(np.array(matches))
    partial = OptimalOffline(**rules, partial_packets=True).schedule(np.array(matches))
    assert partial.loss < full.loss
    assert full.loss == printed_recurrence(matches, 3, 4, 2)


def test_it_is_never_worse_than_top_w() -> None:
    rng = np.random.default_rng(2)
    for w, c_loop in [(10, 11), (10, 20), (3, 50), (1, 2)]:
        matches = rng.zipf(1.5, 3000).clip(max=10_000)
        best = OptimalOffline(w, c_loop, first_request=c_loop).schedule(matches)
        assert best.loss <= top_w_loss(matches, w=w, c_loop=c_loop)
        check(best, matches.tolist(), w, c_loop, c_loop, partial=False)


def test_a_long_stream_is_scheduled_within_its_memory() -> None:
    """10**5 tuples, w = 64, c_loop = 256: the required size. The loss equals that of the schedule."""
    matches = np.random.default_rng(5).geometric(0.05, 100_000)
    best = OptimalOffline(64, 256, first_request=256, memory="10MB").schedule(matches)
    check(best, matches.tolist(), 64, 256, 256, partial=False)
    assert best.loss <= top_w_loss(matches, w=64, c_loop=256)
    with pytest.raises(BudgetError, match="too small for the tables"):
        OptimalOffline(64, 256, memory="1MB").schedule(matches)


@pytest.mark.parametrize(
    ("matches", "w", "loss"),
    [([], 3, 0), ([5], 0, 5), ([5], 1, 0), ([7] * 10, 100, 0), ([7] * 10, 0, 70), ([0] * 5, 1, 0)],
)
def test_the_smallest_cases(matches: list[int], w: int, loss: int) -> None:
    best = OptimalOffline(w, 4).schedule(np.array(matches, np.int64))
    assert best.loss == loss
    assert best.kept.size == len(matches)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"w": -1, "c_loop": 1}, "w is -1"),
        ({"w": float("nan"), "c_loop": 1}, "w is nan"),
        ({"w": 1, "c_loop": 0}, "c_loop is 0"),
        ({"w": 1, "c_loop": 4, "first_request": 5}, "first_request is 5; give a whole number from 0 to 4"),
    ],
)
def test_nonsense_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        OptimalOffline(**arguments)


@pytest.mark.parametrize(
    ("matches", "message"),
    [(np.array([-1]), "matches has -1"), (np.array([0.5]), "float64"), (np.ones((2, 2), int), "shape")],
)
def test_matches_that_are_none_are_refused(matches: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        OptimalOffline(1, 1).schedule(matches)
