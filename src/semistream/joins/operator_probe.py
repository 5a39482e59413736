"""What operators take of the processor for each unit of their work, measured by running them on a small relation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.errors import BudgetError
from semistream.joins.base import SemiStreamJoin
from semistream.joins.candidates import OPERATORS
from semistream.joins.engine import EngineJoin
from semistream.joins.front_stage import FrontStage
from semistream.joins.nested_loop import IndexNestedLoopJoin
from semistream.joins.stats import JoinStats
from semistream.joins.sweep import SweepJoin
from semistream.relation import Relation
from semistream.streams import Zipf
from semistream.tuning.fit import fit_costs
from semistream.tuning.frequencies import Floats
from semistream.tuning.machine import DEFAULT_MACHINE, Machine, OperatorCosts
from semistream.tuning.progress import Progress, unwatched

_COLUMNS = 14
_STREAM_ROWS = 6_000_000  # so that tuples hardly come again: the second time, a cache knows them
_TRIES = 3  # of a sweep, on which the usual choice is built; one of the others
_OTHERS = 0.5  # of the seconds of a run, for these


@dataclass(frozen=True)
class ProbeSize:
    """How much is measured: relations of these ``rows``, ``seconds`` for each run, ``pushed`` tuples at a time.

    What an operator takes for a pass over R, whatever R is, and what it takes for each row of R can only be told apart
    with relations of two sizes.
    """

    rows: tuple[int, int] = (300_000, 3_000_000)
    seconds: float = 0.2
    pushed: int = 75_000


FULL_SIZE = ProbeSize()


@dataclass(frozen=True)
class _Setting:
    """A run: which R, memory as a share of it, columns of it that come out, and the stream's skew.

    The stream goes on without end, or is ``drained`` each time that so many tuples for each row of R were pushed.
    """

    relation: int
    memory: float
    columns: int = _COLUMNS
    exponent: float = 0.0
    drained: float = 0.0


_SWEEP_SETTINGS = (
    _Setting(0, 0.06),  # too little to read ahead
    _Setting(0, 0.2),
    _Setting(0, 0.6),
    _Setting(0, 0.6, columns=2),
    _Setting(1, 0.02),
    _Setting(1, 0.08),
    _Setting(1, 0.02, drained=0.03),
    _Setting(1, 0.1, drained=0.1),
    _Setting(1, 0.3, drained=1.0),
    _Setting(1, 0.3, columns=2, drained=1.0),
)
_SMALL = (_Setting(0, 0.25), _Setting(0, 0.6), _Setting(0, 0.25, columns=2), _Setting(0, 0.6, columns=2))
_SETTINGS = (*_SMALL, _Setting(1, 0.02), _Setting(1, 0.05), _Setting(1, 0.1))
_ENGINE_SETTINGS = (
    _Setting(1, 0.3, exponent=1.0, drained=0.7),
    _Setting(1, 0.1, exponent=1.0, drained=0.7),
    _Setting(1, 0.1, exponent=1.3, drained=0.7),
    _Setting(1, 0.1, exponent=1.6, drained=0.7),  # hardly anything but look-ups
    _Setting(1, 0.1, exponent=0.6, drained=0.7),
)
_CACHED = tuple(_Setting(1, 0.1, exponent=exponent, drained=0.1) for exponent in (1.0, 1.3))


def measure_operators(
    folder: Path, machine: Machine, progress: Progress = unwatched, size: ProbeSize = FULL_SIZE
) -> dict[str, OperatorCosts]:
    """`OperatorCosts` of all operators, by name, with relations that are made in ``folder`` and removed again."""
    del machine  # what the disk takes is hidden behind the processor's work, or shows in the time of a step
    with TemporaryDirectory(prefix=".semistream-calibrate-", dir=folder) as scratch:
        relations = [_build(Path(scratch) / str(rows), rows) for rows in size.rows]
        measured: dict[str, OperatorCosts] = {}
        fronts_last = sorted(OPERATORS.values(), key=lambda kind: issubclass(kind, FrontStage))
        for done, kind in enumerate(fronts_last):
            progress(done / len(OPERATORS))
            runs = _runs(kind, relations, size)
            if issubclass(kind, FrontStage):
                behind = replace(measured[kind.wraps.name], batch_s=measured[SweepJoin.name].batch_s)  # made alike
                measured[kind.name] = _with_look_ups(behind, runs)
            else:
                measured[kind.name] = _costs(runs, DEFAULT_MACHINE.operators[kind.name])
    progress(1.0)
    return measured


def _costs(runs: list[tuple[Floats, float]], usual: OperatorCosts) -> OperatorCosts:
    """The costs that fit runs best, of those kinds of work that an operator usually has; no look-ups in a cache."""
    work = np.array([counts for counts, _ in runs])
    costs, expected = np.zeros(work.shape[1]), np.array(astuple(usual))
    asked = work.any(axis=0) & (expected > 0)
    times = np.array([taken_s for _, taken_s in runs])
    costs[asked] = fit_costs(work[:, asked], times, expected[asked])
    return OperatorCosts(*costs.tolist())


def _with_look_ups(behind: OperatorCosts, runs: list[tuple[Floats, float]]) -> OperatorCosts:
    """The costs of a join behind a cache: what the join takes leaves the look-ups of runs, and of those that miss, what
    it takes to pass them on, and to see which of their rows are worth a place in the cache.
    """
    known = np.array(astuple(behind))
    work = np.array([counts[[_LOOKED_UP, _MISSED]] for counts, _ in runs])
    known_s = np.array([min(float(counts @ known), (1 - _LEAST_LEFT) * taken_s) for counts, taken_s in runs])
    hit_s, miss_s = fit_costs(work, np.array([taken_s for _, taken_s in runs]), known_s=known_s).tolist()
    return replace(behind, hit_s=hit_s, miss_s=miss_s)


def _settings(kind: type[SemiStreamJoin]) -> tuple[Sequence[_Setting], int]:
    """In which settings an operator is run, and how often in each."""
    if kind in (SweepJoin, EngineJoin):
        return _SWEEP_SETTINGS if kind is SweepJoin else _ENGINE_SETTINGS, _TRIES
    if issubclass(kind, FrontStage):
        return _CACHED, 1
    return _SMALL if kind is IndexNestedLoopJoin else _SETTINGS, 1  # look-ups take a copy of R, so that is small


def _runs(kind: type[SemiStreamJoin], relations: list[Relation], size: ProbeSize) -> list[tuple[Floats, float]]:
    """The parts of each setting's run, several times, of which the fastest counts: what disturbs it makes it slower."""
    settings, tries = _settings(kind)
    size = size if tries > 1 else replace(size, seconds=_OTHERS * size.seconds)
    # All settings in turns: who disturbs a run may well disturb the next one too.
    turns = [[_run(kind, relations[each.relation], each, size) for each in settings] for _ in range(tries)]
    best: list[tuple[Floats, float]] = []
    for tried in zip(*turns, strict=True):
        for same in zip(*tried, strict=True):
            best.append(min(same, key=lambda part: part[1] / max(part[0].sum(), 1.0)))
    return best


def _run(
    kind: type[SemiStreamJoin], relation: Relation, setting: _Setting, size: ProbeSize
) -> list[tuple[Floats, float]]:
    """The work of the parts of a run by its counts, in the order of `OperatorCosts`, and how long they took.

    There are no parts if the memory is too small. A stream that is drained has two, what is done while it is pushed and
    when it is flushed: some operators only gather tuples as long as there is room.
    """
    stream = _stream(relation.num_rows, setting.exponent)
    names = [f"c{i}" for i in range(setting.columns)]
    options: dict[str, Any] = {"cache_share": 0.25} if issubclass(kind, FrontStage) else {}
    memory = int(setting.memory * relation.nbytes)
    try:
        operator = kind(relation, stream.schema, on="key", memory=memory, columns=names, **options)
    except BudgetError:
        return []
    with operator:
        source, meter = _Source(operator, stream, size.pushed), _Meter(operator, setting.columns)
        if setting.drained:
            rows = max(int(setting.drained * relation.num_rows), 1)
            source.push(rows)
            source.flush()
            meter.read()
            source.push(rows)
            pushed = meter.read()
            source.flush()
            flushed = meter.read()
            return [pushed, flushed]
        source.push_for(size.seconds / 2)
        while not operator.stats.rows_done:  # kernels are loaded, and what can wait does
            source.push(size.pushed)
        meter.read()
        source.push_for(size.seconds)
        return [meter.read()]


class _Source:
    """Pushes a stream to an operator, some tuples at a time; when it ends it begins anew."""

    def __init__(self, operator: SemiStreamJoin, stream: pa.RecordBatch, rows: int) -> None:
        self._operator = operator
        self._stream = stream
        self._rows = rows
        self._pushed = 0

    def push_for(self, seconds: float) -> None:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            self.push(self._rows)

    def push(self, rows: int) -> None:
        end = self._pushed + rows
        while self._pushed < end:
            some = self._stream.slice(self._pushed % self._stream.num_rows, min(self._rows, end - self._pushed))
            for _ in self._operator.push(some):
                pass
            self._pushed += some.num_rows

    def flush(self) -> None:
        for _ in self._operator.flush():
            pass


class _Meter:
    """Tells what an operator has done since the last time, and how long that took."""

    def __init__(self, operator: SemiStreamJoin, columns: int) -> None:
        self._operator = operator
        self._columns = columns
        self._last = self._now()

    def read(self) -> tuple[Floats, float]:
        before, self._last = self._last, self._now()
        return self._last[0] - before[0], self._last[1] - before[1]

    def _now(self) -> tuple[Floats, float]:
        return _counts(self._operator.stats, self._columns), time.perf_counter()


_LOOKED_UP, _MISSED = 4, 9  # the places of `OperatorCosts.hit_s` and ``miss_s``
_LEAST_LEFT = 0.1  # of the time of a run, for what the join behind a cache does not do


def _counts(stats: JoinStats, columns: int) -> Floats:
    """The units of work that `OperatorCosts` has seconds for."""
    answered = stats.rows_done - stats.cache_hits
    entered = stats.rows_in - stats.cache_hits
    looked_up = stats.rows_in if stats.cache_hits else 0
    values = columns * stats.outputs
    work = [answered, values, stats.probes, stats.steps, looked_up, stats.packets, stats.batches, entered]
    missed = answered if stats.cache_hits else 0
    return np.array([*work, stats.waits, missed], np.float64)


def _build(path: Path, rows: int) -> Relation:
    keys = np.random.default_rng(0).permutation(rows)
    columns = {f"c{i}": keys + i for i in range(_COLUMNS)}
    return Relation.build(pa.table({"key": keys, **columns}), path, key="key")


@lru_cache(maxsize=8)
def _stream(rows: int, exponent: float) -> pa.RecordBatch:
    return next(Zipf(exponent, rows, seed=1).batches(_STREAM_ROWS))
