"""auto: what ``operator="auto"`` chooses, beside the best of the named operators, and what was predicted of it.

A machine that is shared with others changes its speed within minutes. So the choice and those that came near it are
measured in turns, and the machine is calibrated anew for each exponent. What is expected of it then is compared with
rates that are divided by how fast the machine was just before and after (`MachineSpeed`), relative to its calibration.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from benchmarks.bounded_run import SIMULATED_PAGE_BYTES, Rate
from benchmarks.grid import Cell, Grid, GridReport, Setting
from benchmarks.machine_speed import MachineSpeed
from benchmarks.operators import (
    EXPONENTS,
    PAPERS_DISK,
    SHARES,
    SIZES,
    compile_kernels,
    on_simulated_disk,
    on_this_disk,
)
from benchmarks.workload import relation, relation_rows, stream_batches
from semistream import Relation, SemiStreamJoin
from semistream.errors import BudgetError
from semistream.joins.calibrate import calibrate
from semistream.joins.candidates import OPERATORS, candidates
from semistream.joins.join_tuner import join_tuner
from semistream.joins.outlook import workload_of
from semistream.joins.spec import JoinSpec
from semistream.tuning.machine import Machine
from semistream.tuning.prediction import Prediction, predict

BEHIND, OFF, OFF_SIMULATED, MOSTLY = 0.05, 0.20, 0.05, 0.9
_REPEAT = 3  # of the choice and of those that came near it
_NEAR = 0.7  # of the best rate
_ROUGH, _FINE = 0.25, 0.6  # of the seconds of a full run: of each operator first, and of those that are repeated
_SAMPLE_ROWS = 1 << 16
_SIMULATED_SIZE = 0.01  # of the other benchmarks' R: 100 k rows
_SIMULATED_STREAM = 20  # tuples for each row of R

_PROGRESS = Console(stderr=True, soft_wrap=True, highlight=False)

Measure = Callable[[type[SemiStreamJoin], int], Rate]


@dataclass(frozen=True)
class Outcome:
    """A setting: what was chosen, its rates, how fast the machine was at each, the best other, what was expected."""

    setting: Setting
    chosen: str
    rates: list[float]
    speeds: list[float]
    best: str
    best_rate: float
    predicted: float

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def usual_rate(self) -> float:
        """What the rate would have been at the speed that the machine was calibrated with."""
        return statistics.median(rate / speed for rate, speed in zip(self.rates, self.speeds, strict=True))

    @property
    def behind(self) -> float:
        """By how much the choice is behind the best of the named operators; below 0 if it is ahead of all others."""
        return 1 - self.rate / self.best_rate

    @property
    def off(self) -> float:
        """By how much the prediction is off."""
        return abs(self.predicted / self.usual_rate - 1)

    def __str__(self) -> str:
        s, spread = self.setting, f"{min(self.rates):,.0f} - {max(self.rates):,.0f}"
        return (
            f"R {s.rows:,}, Zipf {s.exponent:g}, {s.share:.1%}: {self.chosen} {self.rate:,.0f} ({spread}), predicted "
            f"{self.predicted:,.0f} ({self.predicted / self.usual_rate:.2f} at the machine's speed, which was "
            f"{statistics.median(self.speeds):.2f}); best other {self.best} {self.best_rate:,.0f} "
            f"({self.rate / self.best_rate - 1:+.0%})"
        )


@dataclass(frozen=True)
class Bench:
    """How operators are measured: roughly at first, and finely those that are repeated, with what the machine is."""

    rough: Callable[[Relation, float], Measure]
    fine: Callable[[Relation, float], Measure]
    machine: Callable[[], Machine]
    speed: Callable[[], float]
    repeat: int = _REPEAT


def run(scale: float, folder: Path) -> GridReport:
    compile_kernels(folder)
    real = Grid("This machine's disk, flush included; hot keys anywhere in R", "tuples/s")
    speed = MachineSpeed(folder)

    def calibrated() -> Machine:
        machine = calibrate(folder).machine
        speed.remember()
        return machine

    bench = Bench(
        partial(on_this_disk, scale, seconds=_ROUGH), partial(on_this_disk, scale, seconds=_FINE), calibrated, speed.now
    )
    outcomes = [
        outcome for size in SIZES for outcome in _fill(real, relation(folder, relation_rows(scale * size)), bench)
    ]
    simulated = Grid(
        "The papers' disk, where no other time counts; hot keys anywhere in R", "tuples per simulated second"
    )
    small = relation(folder, relation_rows(scale * _SIMULATED_SIZE), page_bytes=SIMULATED_PAGE_BYTES)
    measured = partial(on_simulated_disk, tuples_per_row=_SIMULATED_STREAM, anywhere=True)
    exact = _fill(simulated, small, Bench(measured, measured, lambda: PAPERS_DISK, lambda: 1.0, repeat=0))
    remarks = [*_verdicts("this machine", outcomes, OFF), *_verdicts("papers' disk", exact, OFF_SIMULATED)]
    setup = "R of 120 B rows, S Zipf over its keys, one partner each; bounded runs, results checked"
    return GridReport("auto", scale, setup, [real, simulated], remarks)


def _fill(grid: Grid, r: Relation, bench: Bench) -> list[Outcome]:
    outcomes = []
    for exponent in EXPONENTS:
        machine = bench.machine()
        rough, fine = bench.rough(r, exponent), bench.fine(r, exponent)
        (sample,) = stream_batches(r.num_rows, _SAMPLE_ROWS, 1, exponent=exponent)
        for share in SHARES:
            cell = _CellRun(grid, r, Setting(r.num_rows, exponent, share), sample, machine)
            if cell.try_all(rough):
                outcomes.append(cell.outcome(fine, bench))
                _PROGRESS.print(f"  {outcomes[-1]}")
    return outcomes


class _CellRun:
    """The operators in one setting."""

    def __init__(self, grid: Grid, r: Relation, setting: Setting, sample: pa.RecordBatch, machine: Machine) -> None:
        self._grid, self._relation, self._setting, self._machine = grid, r, setting, machine
        self._memory = int(r.nbytes * setting.share)
        self._spec, self._sample = JoinSpec.of(r, sample.schema, on="key"), sample
        self._rough: dict[str, Rate] = {}

    def try_all(self, measure: Measure) -> bool:
        """Measure all operators once; False if the memory is too small for all."""
        for name, kind in OPERATORS.items():
            try:
                self._rough[name] = measure(kind, self._memory)
            except BudgetError as refused:
                self._grid.cells.append(Cell(name, self._setting, None, least_bytes=refused.least_bytes))
        return bool(self._rough)

    def outcome(self, measure: Measure, bench: Bench) -> Outcome:
        """Measure the choice and those that matter again, in turns."""
        r, spec, sample = self._relation, self._spec, self._sample
        chosen = join_tuner(r, spec, workload_of(r, spec, sample), self._machine, sample).chosen(self._memory)
        best = max(rate.per_second for rate in self._rough.values())
        near = [n for n, rate in self._rough.items() if n == chosen.operator or rate.per_second >= _NEAR * best]
        fine: dict[str, list[Rate]] = {name: [] for name in near}
        speeds = []
        for _ in range(bench.repeat):
            for name in near:
                before = bench.speed() if name == chosen.operator else 1.0
                fine[name].append(measure(OPERATORS[name], self._memory))
                if name == chosen.operator:
                    speeds.append((before + bench.speed()) / 2)
        taken = {name: fine.get(name) or [rate] for name, rate in self._rough.items()}
        medians = {name: statistics.median(rate.per_second for rate in rates) for name, rates in taken.items()}
        self._grid.cells += [Cell(n, self._setting, m, taken[n][-1].tuples) for n, m in medians.items()]
        own = taken[chosen.operator]
        others = {name: median for name, median in medians.items() if name != chosen.operator} or medians
        best_other = max(others, key=lambda name: others[name])
        return Outcome(
            self._setting,
            chosen.operator,
            [rate.per_second for rate in own],
            speeds or [1.0] * len(own),
            best_other,
            others[best_other],
            self._predicted(chosen, own[-1].tuples),
        )

    def _predicted(self, chosen: Prediction, tuples: int) -> float:
        """The rate that is expected of the choice, with the options that it has, for a run that ends."""
        (candidate,) = candidates(self._relation, self._spec, self._sample, [OPERATORS[chosen.operator]])
        model = candidate.arranged(self._memory, chosen.options).model
        workload = workload_of(self._relation, self._spec, zipf=self._setting.exponent, batch_rows=tuples)
        return predict(chosen.operator, model, workload, self._machine, memory_bytes=self._memory).rate


def _verdicts(where: str, outcomes: list[Outcome], off: float) -> list[str]:
    behind = [outcome for outcome in outcomes if outcome.behind > BEHIND]
    far = [outcome for outcome in outcomes if outcome.off > off]
    total = len(outcomes)
    lines = [
        f"{where}: the choice is more than {BEHIND:.0%} behind the best named operator in {len(behind)} of {total} "
        "cells (none required)",
        f"{where}: the prediction is within {off:.0%} in {total - len(far)} of {total} cells",
    ]
    return lines + [f"{where}: {outcome}" for outcome in outcomes]
