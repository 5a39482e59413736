"""auto: what ``operator="auto"`` chooses, beside the best of the named operators, and what was predicted of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.bounded_run import SIMULATED_PAGE_BYTES, Rate
from benchmarks.grid import Cell, Grid, GridReport, Setting
from benchmarks.operators import (
    EXPONENTS,
    PAPERS_DISK,
    SHARES,
    SIMULATED_SIZE,
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
from semistream.joins.choice import choose_operator
from semistream.joins.outlook import workload_of
from semistream.joins.spec import JoinSpec
from semistream.tuning.machine import Machine
from semistream.tuning.tuner import Tuner

BEHIND, OFF, OFF_SIMULATED, MOSTLY = 0.05, 0.20, 0.05, 0.9
_REPEAT = 3  # of the choice and of those that came near it
_NEAR = 0.7  # of the best rate
_SAMPLE_ROWS = 1 << 16
_SIMULATED_STREAM = 20  # tuples for each row of R

Measure = Callable[[type[SemiStreamJoin], int], Rate]


@dataclass(frozen=True)
class Outcome:
    """A setting: what was chosen, its rate and spread, the best other, and what was expected."""

    setting: Setting
    chosen: str
    rates: list[float]
    best: str
    best_rate: float
    predicted: float

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def behind(self) -> float:
        """By how much the choice is behind the best of the named operators; below 0 if it is ahead of all others."""
        return 1 - self.rate / self.best_rate

    @property
    def off(self) -> float:
        """By how much the prediction is off."""
        return abs(self.predicted / self.rate - 1)

    def __str__(self) -> str:
        s, spread = self.setting, f"{min(self.rates):,.0f} - {max(self.rates):,.0f}"
        return (
            f"R {s.rows:,}, Zipf {s.exponent:g}, {s.share:.1%}: {self.chosen} {self.rate:,.0f} ({spread}), predicted "
            f"{self.predicted:,.0f} ({self.predicted / self.rate:.2f}); best other {self.best} {self.best_rate:,.0f}"
        )


def run(scale: float, folder: Path) -> GridReport:
    compile_kernels(folder)
    machine = calibrate(folder).machine
    real = Grid("This machine's disk, flush included; hot keys anywhere in R", "tuples/s")
    outcomes = []
    for size in SIZES:
        r = relation(folder, relation_rows(scale * size))
        outcomes += _fill(real, r, partial(on_this_disk, scale), machine)
    simulated = Grid(
        "The papers' disk, where no other time counts; hot keys anywhere in R", "tuples per simulated second"
    )
    small = relation(folder, relation_rows(scale * SIMULATED_SIZE), page_bytes=SIMULATED_PAGE_BYTES)
    measured = partial(on_simulated_disk, tuples_per_row=_SIMULATED_STREAM, anywhere=True)
    exact = _fill(simulated, small, measured, PAPERS_DISK, repeat=1)
    remarks = [*_verdicts("this machine", outcomes, OFF), *_verdicts("papers' disk", exact, OFF_SIMULATED)]
    setup = f"R of 120 B rows, S Zipf over its keys, one partner each; bounded runs, results checked; {machine.name}"
    return GridReport("auto", scale, setup, [real, simulated], remarks)


def _fill(
    grid: Grid, r: Relation, measured: Callable[[Relation, float], Measure], machine: Machine, repeat: int = _REPEAT
) -> list[Outcome]:
    outcomes = []
    for exponent in EXPONENTS:
        measure = measured(r, exponent)
        (sample,) = stream_batches(r.num_rows, _SAMPLE_ROWS, 1, exponent=exponent)
        for share in SHARES:
            setting = Setting(r.num_rows, exponent, share)
            outcome = _measured(grid, r, setting, measure, sample, machine, repeat)
            if outcome is not None:
                outcomes.append(outcome)
    return outcomes


def _measured(
    grid: Grid,
    r: Relation,
    setting: Setting,
    measure: Measure,
    sample: pa.RecordBatch,
    machine: Machine,
    repeat: int,
) -> Outcome | None:
    """All operators once, then those that matter again; None if the memory is too small for all."""
    memory = int(r.nbytes * setting.share)
    rates: dict[str, list[float]] = {}
    tuples: dict[str, int] = {}
    for name, kind in OPERATORS.items():
        try:
            rate = measure(kind, memory)
        except BudgetError as refused:
            grid.cells.append(Cell(name, setting, None, least_bytes=refused.least_bytes))
        else:
            rates[name], tuples[name] = [rate.per_second], rate.tuples
    if not rates:
        return None
    spec = JoinSpec.of(r, sample.schema, on="key")
    chosen = choose_operator("auto", r, spec, memory, sample=sample, machine=machine).name
    best = max(rate for (rate,) in rates.values())
    for name in rates:
        if name == chosen or rates[name][0] >= _NEAR * best:
            rates[name] += [measure(OPERATORS[name], memory).per_second for _ in range(repeat - 1)]
    medians = {name: statistics.median(found) for name, found in rates.items()}
    grid.cells += [Cell(name, setting, median, tuples[name]) for name, median in medians.items()]
    others = {name: median for name, median in medians.items() if name != chosen} or medians
    best_other = max(others, key=lambda name: others[name])
    workload = workload_of(r, spec, zipf=setting.exponent, batch_rows=tuples[chosen])
    tuner = Tuner(workload, machine, candidates(r, spec, sample, [OPERATORS[chosen]]))
    predicted = tuner.best_rate(memory).rate
    return Outcome(setting, chosen, rates[chosen], best_other, others[best_other], predicted)


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
