"""Costs of operators: found again from runs of which they are known, and from those alone that were not disturbed."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins import operator_probe
from semistream.joins.candidates import OPERATORS
from semistream.joins.engine import EngineJoin
from semistream.joins.front_stage import FrontStage
from semistream.joins.machine_pulse import MachinePulse
from semistream.joins.operator_probe import OperatorRuns, ProbeSize
from semistream.joins.sweep import SweepJoin
from semistream.relation import DiskCosts
from semistream.tuning.machine import DEFAULT_MACHINE

if TYPE_CHECKING:
    from semistream.joins.base import SemiStreamJoin

DISK = DiskCosts(1e-4, transfer_s_per_byte=1e-9)
WAITS, STEPS = operator_probe._WAITS, operator_probe._STEPS
LOOKED_UP, MISSED = operator_probe._LOOKED_UP, operator_probe._MISSED


def known_runs(kind: type[SemiStreamJoin], slower: float, seed: int) -> list[operator_probe._Part]:
    """Runs of any work that an operator has, which take what it usually costs, so many times."""
    if issubclass(kind, FrontStage) and kind is not EngineJoin:
        return []
    random, costs = np.random.default_rng(seed), slower * np.array(astuple(DEFAULT_MACHINE.operators[kind.name]))
    parts = []
    for i in range(40):
        work = np.where(costs > 0, random.uniform(0.2, 5.0, costs.size) / np.maximum(costs, 1e-12), 0.0)
        work[[LOOKED_UP, MISSED]] *= 10  # which are most of what is done, as where they are measured
        reads = random.uniform(0, 1e9)
        if i % 2 or not costs[WAITS] or kind is EngineJoin:
            work[WAITS] = 0.0
        else:
            work[STEPS] = work[WAITS]  # it waits in each of its iterations
        taken_s = float(work @ costs) - float(work[WAITS] * costs[STEPS])
        waited_s = DISK.transfer_s(reads)
        parts.append(operator_probe._Part(work, taken_s, taken_s + waited_s, reads))
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


@pytest.mark.parametrize("disturbed", [[True, False, False], [False, True, False], [True, True, False], [False] * 3])
def test_only_runs_count_that_were_not_disturbed(disturbed: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slower = 0.0, 1.0

    def work() -> None:
        nonlocal now_s
        now_s += slower

    def run(*args: object) -> list[operator_probe._Part]:
        return [operator_probe._Part(np.ones(3), slower, slower, 0.0)]

    monkeypatch.setattr(operator_probe, "_run", run)
    pulse = MachinePulse(work, clock=lambda: now_s)
    tries = operator_probe._Tries(operator_probe._Setting(0, 0.1), pulse)
    for slow in disturbed:
        slower = 2.0 if slow else 1.0
        pulse.beat()
        tries.add(SweepJoin, None, ProbeSize())
    assert len(tries.calm) == disturbed.count(False)
    (part,) = tries.typical
    assert part.all_s == 1.0


def test_tuples_are_looked_up_once_there_is_a_cache_to_look_them_up_in(tmp_path: Path) -> None:
    relation, size = operator_probe._build(tmp_path / "r", 120_000), ProbeSize(pushed=10_000)
    looked_up = []
    for setting in operator_probe._ENGINE_SETTINGS:
        pushed, flushed = operator_probe._run(EngineJoin, relation, setting, size)
        rows = int(setting.drained * relation.num_rows)
        counts = [part.work[[LOOKED_UP, MISSED]].tolist() for part in (pushed, flushed)]
        (entered, missed_at_once), (later, missed_later) = counts
        looked_up.append(entered)
        assert entered in (0, rows)
        assert later == 0
        assert missed_at_once + missed_later <= entered
    assert max(looked_up) > 0


def test_too_little_memory_for_a_setting_leaves_it_out(tmp_path: Path) -> None:
    relation = operator_probe._build(tmp_path / "r", 1000)
    setting = replace(operator_probe._SWEEP_SETTINGS[0], memory=1e-3)
    assert operator_probe._run(SweepJoin, relation, setting, ProbeSize()) == []
