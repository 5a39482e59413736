"""Costs of operators, recovered from runs with known costs."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.costs.machine import DEFAULT_MACHINE
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import DiskCosts
from semistream.tuning.calibration.fit import LOOKED_UP, MISSED, STEPS, WAITS, OperatorRuns, RunPart
from semistream.tuning.candidates import OPERATORS

if TYPE_CHECKING:
    from semistream.joins.base import SemiStreamJoin

DISK = DiskCosts(1e-4, transfer_s_per_byte=1e-9)


def known_runs(kind: type[SemiStreamJoin], slower: float, seed: int) -> list[RunPart]:
    """Runs of any work that an operator has, which take what it usually costs, so many times."""
    if issubclass(kind, FrontStage) and kind is not EngineJoin:
        return []
    random, costs = np.random.default_rng(seed), slower * np.array(astuple(DEFAULT_MACHINE.operators[kind.name]))
    parts = []
    for i in range(40):
        work = np.where(costs > 0, random.uniform(0.2, 5.0, costs.size) / np.maximum(costs, 1e-12), 0.0)
        work[[LOOKED_UP, MISSED]] *= 10  # most of the work, as in the runs that measure them
        reads = random.uniform(0, 1e9)
        if i % 2 or not costs[WAITS] or kind is EngineJoin:
            work[WAITS] = 0.0
        else:
            work[STEPS] = work[WAITS]  # it waits in each of its iterations
        taken_s = float(work @ costs) - float(work[WAITS] * costs[STEPS])
        waited_s = DISK.transfer_s(reads)
        parts.append(RunPart(work, taken_s, taken_s + waited_s, reads))
    return parts


@given(slower=st.floats(0.2, 8.0), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_a_machine_that_is_slower_has_higher_costs_by_as_much(slower: float, seed: int) -> None:
    runs = OperatorRuns({kind: known_runs(kind, slower, seed) for kind in OPERATORS.values()})
    found = runs.costs(DISK)
    assert set(found) == set(OPERATORS)
    for kind in OPERATORS.values():
        usual = DEFAULT_MACHINE.operators[kind.name]
        assert astuple(found[kind.name]) == pytest.approx(tuple(slower * cost for cost in astuple(usual)), rel=1e-3)


def test_an_operator_costs_something_on_a_disk_that_was_slower_when_it_was_measured() -> None:
    busy = DiskCosts(1e-4, transfer_s_per_byte=1e-6)
    runs = {kind: known_runs(kind, 1.0, 0) for kind in OPERATORS.values()}
    runs[SweepJoin] = [
        part for part in runs[SweepJoin] if part.work[WAITS]
    ]  # the disk would take longer than all of it
    assert sum(astuple(OperatorRuns(runs).costs(busy)[SweepJoin.name])) > 0
