"""Runs of operators: the counts of look-ups, and the choice of undisturbed runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from semistream.joins.base import SemiStreamJoin
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.mesh.adaptive import AdaptiveMeshJoin
from semistream.joins.mesh.operator import MeshJoin
from semistream.joins.sweep.operator import SweepJoin
from semistream.tuning.calibration import operator_probe
from semistream.tuning.calibration.fit import ANSWERED, LOOKED_UP, MISSED, PROBES, RunPart
from semistream.tuning.calibration.noise import MachinePulse
from semistream.tuning.calibration.operator_probe import ProbeSize


@pytest.mark.parametrize("disturbed", [[True, False, False], [False, True, False], [True, True, False], [False] * 3])
def test_only_runs_count_that_were_not_disturbed(disturbed: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slower = 0.0, 1.0

    def work() -> None:
        nonlocal now_s
        now_s += slower

    def run(*args: object) -> list[RunPart]:
        return [RunPart(np.ones(3), slower, slower, 0.0)]

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


@dataclass
class MadeUpRuns:
    """Notes each run, beat and disk part that begins; a run takes ``run_s`` of a made-up clock."""

    run_s: float
    now_s: float = 0.0
    events: list[str] = field(default_factory=list)

    def run(self, *args: object) -> list[RunPart]:  # noqa: ARG002
        self.events.append("run")
        self.now_s += self.run_s
        return [RunPart(np.ones(14), self.run_s, self.run_s, 0.0)]

    @contextmanager
    def pulse(self, relation: object) -> Iterator[MachinePulse]:  # noqa: ARG002
        yield MachinePulse(lambda: self.events.append("beat"), clock=lambda: float(len(self.events)))

    def halfway(self) -> None:
        self.events.append("halfway")
        self.now_s += self.run_s

    @property
    def runs_before_and_after(self) -> tuple[int, int]:
        there = self.events.index("halfway")
        return self.events[:there].count("run"), self.events[there:].count("run")


@pytest.mark.parametrize("run_s", [0.01, 0.1, 0.5, 1.0, 2.0])
def test_the_disk_has_its_turn_between_two_runs_about_halfway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_s: float
) -> None:
    """Calm or slow, a machine has many runs before and after, and the pulse is taken anew before the next run."""
    made_up = MadeUpRuns(run_s)
    monkeypatch.setattr(operator_probe, "_run", made_up.run)
    monkeypatch.setattr(operator_probe, "_build", lambda path, rows: None)
    monkeypatch.setattr(operator_probe, "pulse_of_joins", made_up.pulse)
    monkeypatch.setattr(operator_probe.time, "perf_counter", lambda: made_up.now_s)
    operator_probe.measure_operators(tmp_path, halfway=made_up.halfway)
    before, after = made_up.runs_before_and_after
    assert made_up.events.count("halfway") == 1
    assert min(before, after) >= 12
    there = made_up.events.index("halfway")
    assert made_up.events[there - 2 : there + 3] == ["run", "beat", "halfway", "beat", "run"]


@pytest.mark.slow
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


@pytest.mark.parametrize("kind", [MeshJoin, AdaptiveMeshJoin, SweepJoin])
def test_a_run_goes_on_until_tuples_were_answered_in_it_however_many_an_operator_gathers(
    tmp_path: Path, kind: type[SemiStreamJoin]
) -> None:
    relation, size = operator_probe._build(tmp_path / "r", 30_000), ProbeSize(seconds=1e-6, pushed=100)
    for setting in operator_probe._SMALL:
        (part,) = operator_probe._run(kind, relation, setting, size)
        assert part.work[ANSWERED] > 0
        assert part.work[PROBES] > 0
