"""auto: the choice of ``operator="auto"`` against the best of the named operators, and against its prediction.

The speed of a shared machine changes within minutes. The choice and its close rivals are therefore measured in turns,
and compared by the median of their ratios per turn. A round has some turns of each setting, and rounds go on with the
settings still undecided. The machine is calibrated before each of the first rounds; the first calibration determines
the choice. The prediction from a calibration is compared with the rates of its round, twice: over the turns in which
the machine was about as fast as during calibration, both just before and just after the run (`MachineSpeed`; a turn
waits a while for this), and over all turns. Later rounds serve only to judge the choice.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from benchmarks.harness.bounded_run import SIMULATED_PAGE_BYTES, Rate
from benchmarks.harness.grid import Cell, Grid, GridReport, Setting
from benchmarks.harness.machine_speed import MachineSpeed, is_usual
from benchmarks.harness.workload import relation, relation_rows, stream_batches
from benchmarks.operators import (
    EXPONENTS,
    PAPERS_DISK,
    SHARES,
    SIZES,
    Measure,
    compile_kernels,
    on_simulated_disk,
    on_this_disk,
)
from semistream import EngineJoin, Relation, SweepJoin
from semistream.costs.machine import Machine
from semistream.costs.prediction import predict
from semistream.errors import BudgetError
from semistream.joins.condition.spec import JoinSpec
from semistream.tuning.calibration.calibrate import calibrate
from semistream.tuning.candidates import OPERATORS, candidates, join_tuner
from semistream.tuning.explain import workload_of

BEHIND = 0.05
OFF, CELLS = 0.20, 0.9  # tolerated relative error of a prediction, and share of the cells that must be within it
OFF_SIMULATED, CELLS_SIMULATED = 0.05, 1.0
_TRIES = 2  # rough runs of all operators, to find the rivals
_CALIBRATIONS = 3
_TOGETHER, _LEAST_TURNS, _MOST_TURNS = 3, 9, 12  # of choice and rivals; operators are rebuilt after _TOGETHER turns
_DOUBTED_TURNS = 60  # most turns if the choice seems to be behind
_CLOSE = (0.8, 1.02)  # ratio of the choice to the best other operator that calls for more turns
_NEAR = 0.6  # share of the best rate from which an operator is a rival
_ALWAYS = (EngineJoin.name, SweepJoin.name)  # always close to each other, even if a rough run is too short to show it
_ROUGH, _FINE = 0.25, 0.6  # duration relative to a full run: of the first runs, and of the repeated ones
_SAMPLE_ROWS = 1 << 16
_SIMULATED_SIZE = 0.01  # relative to the other benchmarks' R: 100 k rows
_SIMULATED_STREAM, _LONG_STREAM = 20, 300  # tuples per row of R; few of a skewed stream miss the cache

Runs = Mapping[str, Callable[[], Rate]]
"""Operators by name; each call runs one once more."""

_PROGRESS = Console(stderr=True, soft_wrap=True, highlight=False)


@dataclass(frozen=True)
class Outcome:
    """Outcome in a setting: the chosen operator with its rates, and the best other operator with its rates.

    ``speeds`` has the speed of the machine in each run, the less usual of those before and after it. ``others`` has the
    rates of the best other operator, and ``predicted`` the predicted rate for each turn of the first rounds.
    """

    setting: Setting
    chosen: str
    rates: list[float]
    speeds: list[float]
    best: str
    others: list[float]
    predicted: list[float]

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def ratio(self) -> float:
        """Median over all turns of the rate of the choice over that of the best other operator."""
        return statistics.median(self.ratios)

    @property
    def ratios(self) -> list[float]:
        """Rate of the choice over that of the best other operator, in each turn; a non-rival has only one rate."""
        others = self.others * len(self.rates) if len(self.others) == 1 else self.others
        return [rate / other for rate, other in zip(self.rates, others, strict=True)]

    @property
    def expected(self) -> float:
        """Median of the prediction over the rate, in the turns at the calibrated speed.

        Without such turns, it is the median of all turns with a prediction.
        """
        usual = [ratio for ratio, speed in zip(self._predictions, self.speeds, strict=False) if is_usual(speed)]
        return statistics.median(usual) if usual else self.expected_anytime

    @property
    def expected_anytime(self) -> float:
        """Median of the prediction over the rate, in all turns with a prediction."""
        return statistics.median(self._predictions)

    @property
    def _predictions(self) -> list[float]:
        return [each / rate for each, rate in zip(self.predicted, self.rates, strict=False)]

    def __str__(self) -> str:
        s, turns, usual = self.setting, len(self.rates), sum(is_usual(speed) for speed in self.speeds)
        return (
            f"R {s.rows:,}, Zipf {s.exponent:g}, {s.share:.1%}: {self.chosen} {self.rate:,.0f} ({_spread(self.rates)}; "
            f"{turns} turns, {usual} of them at the machine's usual speed), predicted {self.expected:.2f} of it, "
            f"{self.expected_anytime:.2f} in all turns; {self.ratio:.2f} of {self.best}'s rate "
            f"({min(self.ratios):.2f} - {max(self.ratios):.2f}; {_spread(self.others)})"
        )


def _spread(values: list[float]) -> str:
    return f"{min(values):,.0f} - {max(values):,.0f}"


@dataclass(frozen=True)
class Bench:
    """Measurement of operators: rough first runs, fine repeated runs, the machine's costs and speed, and the turns."""

    rough: Callable[[Relation, float], Measure]
    fine: Callable[[Relation, float], Measure]
    machine: Callable[[], Machine]
    speed: Callable[[], float]
    settle: Callable[[], float]
    tries: int = _TRIES
    calibrations: int = _CALIBRATIONS
    together: int = _TOGETHER
    least_turns: int = _LEAST_TURNS
    most_turns: int = _MOST_TURNS
    doubted_turns: int = _DOUBTED_TURNS

    @classmethod
    def exact(cls, measure: Callable[[Relation, float], Measure], machine: Machine) -> Bench:
        """Return a bench for reproducible rates, which need only one run."""
        return cls(
            measure,
            measure,
            lambda: machine,
            lambda: 1.0,
            lambda: 1.0,
            tries=1,
            calibrations=1,
            together=1,
            least_turns=1,
            most_turns=1,
            doubted_turns=1,
        )


def run(scale: float, folder: Path) -> GridReport:
    compile_kernels(folder)
    real = Grid("This machine's disk, flush included; hot keys anywhere in R", "tuples/s")
    speed = MachineSpeed(folder)

    def calibrated() -> Machine:
        machine = calibrate(folder, progress=lambda step, _: speed.tried() if step == "operators" else None).machine
        speed.remember()
        return machine

    bench = Bench(
        partial(on_this_disk, scale, seconds=_ROUGH),
        partial(on_this_disk, scale, seconds=_FINE),
        calibrated,
        speed.now,
        speed.settle,
    )
    outcomes = [
        outcome for size in SIZES for outcome in _fill(real, relation(folder, relation_rows(scale * size)), bench)
    ]
    simulated = Grid(
        "The papers' disk, where no other time counts; hot keys anywhere in R", "tuples per simulated second"
    )
    small = relation(folder, relation_rows(scale * _SIMULATED_SIZE), page_bytes=SIMULATED_PAGE_BYTES)
    exact = _fill(simulated, small, Bench.exact(_simulated, PAPERS_DISK))
    remarks = [
        *_verdicts("this machine", outcomes, OFF, CELLS),
        *_verdicts("papers' disk", exact, OFF_SIMULATED, CELLS_SIMULATED),
    ]
    setup = "R of 120 B rows, S Zipf over its keys, one match each; bounded runs, results checked"
    return GridReport("auto", scale, setup, [real, simulated], remarks)


def _simulated(r: Relation, exponent: float) -> Measure:
    """Measure rates on the papers' disk, over several passes of R, because one more or less is chance."""
    tuples = _LONG_STREAM if exponent > 1 else _SIMULATED_STREAM
    return on_simulated_disk(r, exponent, tuples_per_row=tuples, anywhere=True)


def _fill(grid: Grid, r: Relation, bench: Bench) -> list[Outcome]:
    machine, cells = bench.machine(), []
    for exponent in EXPONENTS:
        rough, fine = bench.rough(r, exponent), bench.fine(r, exponent)
        (sample,) = stream_batches(r.num_rows, _SAMPLE_ROWS, 1, exponent=exponent)
        for share in SHARES:
            cell = _CellRun(grid, r, Setting(r.num_rows, exponent, share), sample, bench)
            if cell.try_all(rough):
                cell.choose(machine, fine)
                cells.append(cell)
    rounds = 0
    while open_cells := [cell for cell in cells if cell.is_open]:
        if 0 < rounds < bench.calibrations:
            machine = bench.machine()
        for cell in open_cells:
            cell.take_turns(machine if rounds < bench.calibrations else None)
            _PROGRESS.print(f"  {cell.outcome}")
        rounds += 1
    for cell in cells:
        cell.record()
    return [cell.outcome for cell in cells]


class _CellRun:
    """Measurement of the operators in one setting."""

    def __init__(self, grid: Grid, r: Relation, setting: Setting, sample: pa.RecordBatch, bench: Bench) -> None:
        self._grid, self._relation, self._setting, self._bench = grid, r, setting, bench
        self._memory = int(r.nbytes * setting.share)
        self._spec, self._sample = JoinSpec.of(r, sample.schema, on="key"), sample
        self._rough: dict[str, Rate] = {}
        self._predicted: list[float] = []

    def try_all(self, measure: Measure) -> bool:
        """Measure all operators roughly, twice in case of a disturbance; False if the memory is too small for all."""
        self._bench.settle()
        for name, kind in OPERATORS.items():
            try:
                with measure(kind, self._memory) as run:
                    self._rough[name] = max((run(None) for _ in range(self._bench.tries)), key=lambda r: r.per_second)
            except BudgetError as refused:
                self._grid.cells.append(Cell(name, self._setting, None, least_bytes=refused.least_bytes))
        return bool(self._rough)

    def choose(self, machine: Machine, measure: Measure) -> None:
        """Choose an operator for a machine, and determine its rivals."""
        r, spec, sample = self._relation, self._spec, self._sample
        self._chosen = join_tuner(r, spec, workload_of(r, spec, sample), machine, sample).chosen(self._memory)
        best = max(rate.per_second for rate in self._rough.values())
        always = {self._chosen.operator, *_ALWAYS}
        near = [n for n, rate in self._rough.items() if n in always or rate.per_second >= _NEAR * best]
        tuples = int(max(self._rough[name].tuples for name in near) * _FINE / _ROUGH)

        @contextmanager
        def opened(backwards: bool) -> Iterator[Runs]:
            with ExitStack() as stack:
                names = reversed(near) if backwards else near
                made = {name: stack.enter_context(measure(OPERATORS[name], self._memory)) for name in names}
                yield {name: partial(run, tuples) for name, run in made.items()}

        self._far = {n: rate.per_second for n, rate in self._rough.items() if n not in near}
        self._turns = _Turns(self._chosen.operator, opened, self._bench)

    @property
    def is_open(self) -> bool:
        """True if more turns may change the verdict."""
        return self._turns.is_open

    def take_turns(self, machine: Machine | None) -> None:
        """Measure choice and rivals in turns; add the prediction for ``machine``, if given."""
        self._turns.take()
        if machine is not None:
            own = self._turns.rates[self._chosen.operator]  # all runs have the same number of tuples
            self._predicted += [self._expected(machine, own[-1].tuples)] * (len(own) - len(self._predicted))

    def record(self) -> None:
        """Add the measured rates to the grid."""
        for name, rough in self._rough.items():
            rate = rough.per_second if name in self._far else self._turns.rate(name)
            self._grid.cells.append(Cell(name, self._setting, rate, rough.tuples))

    @property
    def outcome(self) -> Outcome:
        """Outcome so far."""
        rival, others = self._turns.best_other(self._far)
        rates = [rate.per_second for rate in self._turns.rates[self._chosen.operator]]
        return Outcome(
            self._setting, self._chosen.operator, rates, self._turns.speeds, rival, others, list(self._predicted)
        )

    def _expected(self, machine: Machine, tuples: int) -> float:
        """Predict the rate of the choice with its options on a machine, for a run of ``tuples`` with a flush."""
        chosen = self._chosen
        (candidate,) = candidates(self._relation, self._spec, self._sample, [OPERATORS[chosen.operator]])
        model = candidate.arranged(self._memory, chosen.options).model
        workload = workload_of(self._relation, self._spec, zipf=self._setting.exponent, batch_rows=tuples)
        return predict(chosen.operator, model, workload, machine, memory_bytes=self._memory).rate


class _Turns:
    """Runs of operators in turns, until the ``chosen`` one is not close to the best other, or enough turns are done.

    Operators are rebuilt after a few turns, in reverse order every second time, because the place of their memory
    affects their speed as long as they live.
    """

    def __init__(self, chosen: str, opened: Callable[[bool], AbstractContextManager[Runs]], bench: Bench) -> None:
        self._chosen, self._opened, self._bench = chosen, opened, bench
        self.rates: dict[str, list[Rate]] = {}
        self.speeds: list[float] = []

    def take(self) -> None:
        """Take some turns with newly built operators."""
        with self._opened(self._turns // self._bench.together % 2 == 1) as runs:
            for _ in range(self._bench.together):
                self._turn(runs)

    @property
    def _turns(self) -> int:
        return len(self.speeds)

    def _turn(self, runs: Runs) -> None:
        before = self._bench.settle()
        for place, name in enumerate(sorted(runs, reverse=bool(self._turns % 2))):  # alternate the order
            if place and name == self._chosen:
                before = self._bench.speed()
            self.rates.setdefault(name, []).append(runs[name]())
            if name == self._chosen:
                self.speeds.append(max(before, self._bench.speed(), key=lambda speed: abs(speed - 1)))

    @property
    def is_open(self) -> bool:
        """True if there are few turns, or the choice is close to the best other operator or slightly behind it."""
        if self._turns < self._bench.least_turns:
            return True
        (low, high), (best, others) = _CLOSE, self.best_other({})
        own = [rate.per_second for rate in self.rates[self._chosen]]
        ratio = statistics.median(a / b for a, b in zip(own, others, strict=True))
        if best == self._chosen or not low <= ratio <= high:
            return False
        return self._turns < (self._bench.most_turns if ratio >= 1 - BEHIND else self._bench.doubted_turns)

    def rate(self, name: str) -> float:
        """Return the median of an operator's rates."""
        return statistics.median(rate.per_second for rate in self.rates[name])

    def best_other(self, far: dict[str, float]) -> tuple[str, list[float]]:
        """Return the best operator other than the chosen one, and its rates; ``far`` has single rates of non-rivals.

        If there is no other operator, return the chosen one.
        """
        medians = far | {name: self.rate(name) for name in self.rates}
        best = max((name for name in medians if name != self._chosen), key=medians.__getitem__, default=self._chosen)
        return best, [rate.per_second for rate in self.rates[best]] if best in self.rates else [far[best]]


def _verdicts(where: str, outcomes: list[Outcome], off: float, cells: float) -> list[str]:
    total = len(outcomes)
    required = math.ceil(cells * total)
    behind = sum(outcome.ratio < 1 - BEHIND for outcome in outcomes)
    near = sum(abs(outcome.expected - 1) <= off for outcome in outcomes)
    anytime = sum(abs(outcome.expected_anytime - 1) <= off for outcome in outcomes)
    lines = [
        f"{where}: the choice is more than {BEHIND:.0%} behind the best named operator in {behind} of {total} cells "
        "(none required)",
        f"{where}: the prediction is within {off:.0%} of the rate in {near} of {total} cells ({required} required); "
        f"including turns in which the machine was not at its usual speed, in {anytime}",
    ]
    return lines + [f"{where}: {outcome}" for outcome in outcomes]
