"""The pulse of a machine: long beats are recognised, even if there are many."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.relation import Relation
from semistream.tuning.calibration.noise import MachinePulse, pulse_of_joins


class MadeUpMachine:
    """Takes so many seconds for each beat, one after the other."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self._seconds = seconds
        self.now_s = 0.0

    def work(self) -> None:
        self.now_s += next(self._seconds)

    def pulse(self) -> MachinePulse:
        return MachinePulse(self.work, clock=lambda: self.now_s)


@given(
    calm=st.floats(1e-3, 1.0),
    slower=st.floats(1.3, 10.0),
    disturbed=st.lists(st.booleans(), min_size=12, max_size=60).filter(lambda beats: sum(beats) <= 0.7 * len(beats)),
)
def test_beats_that_take_longer_are_told_although_most_may_do(
    calm: float, slower: float, disturbed: list[bool]
) -> None:
    seconds = [calm * (slower if slow else 1.0) for slow in disturbed]
    pulse = MadeUpMachine(chain(repeat(calm, 4), seconds)).pulse()
    beats = [pulse.beat() for _ in seconds]
    assert beats == pytest.approx(seconds)
    assert [not pulse.is_calm(beat) for beat in beats] == disturbed


def test_the_first_beats_which_take_longer_do_not_count() -> None:
    pulse = MadeUpMachine(chain([9.0, 9.0, 9.0], repeat(1.0))).pulse()
    assert pulse.last_s == 1.0
    assert pulse.is_calm(1.0)
    assert not pulse.is_calm(2.0)


@pytest.mark.parametrize("rows", [1, 50_000])
def test_any_relation_has_a_pulse(tmp_path: Path, rows: int) -> None:
    relation = Relation.build(pa.table({"key": np.arange(rows), "c0": np.arange(rows)}), tmp_path / "r", key="key")
    with pulse_of_joins(relation) as pulse:
        assert pulse.beat() > 0
        assert pulse.last_s > 0
