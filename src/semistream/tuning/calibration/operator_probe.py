"""What operators take of the processor for each unit of their work, measured by running them on a small relation.

What the disk takes is measured apart (`disk_probe`). So the time in which no thread of the process has work does not
count here, but where an operator waits for each of its reads.

A machine that is shared with others is slower at times, for seconds; where the disk is served by the same processors,
as that of a virtual machine may be, it is not even read while an operator computes. So its pulse is taken before and
after each run (`MachinePulse`). Of the operators on which the usual choice is built, runs that were disturbed are
repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.costs.key_frequencies import Floats, KeyFrequencies
from semistream.datasets import Zipf
from semistream.errors import BudgetError
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.lookup.nested_loop import IndexNestedLoopJoin
from semistream.joins.lookup.resident import ResidentJoin
from semistream.joins.parts.stats import JoinStats
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import Relation
from semistream.tuning.calibration.fit import (
    ANSWERED,
    ANSWERS,
    BATCHES,
    FRESH,
    LOOKED_UP,
    MISSED,
    PROBES,
    OperatorRuns,
    RunPart,
)
from semistream.tuning.calibration.noise import MachinePulse, pulse_of_joins
from semistream.tuning.calibration.progress import Progress, unwatched
from semistream.tuning.candidates import OPERATORS

_COLUMNS = 14
_STREAM_ROWS = 6_000_000  # so that tuples hardly come again: the second time, a cache knows them
_REPEATED = (SweepJoin, EngineJoin)  # on which the usual choice is built
_CALM_RUNS, _MOST_TRIES = 3, 8  # of these; one of the others
_OTHERS = 0.5  # of the seconds of a run, for the others
_LOOKED_UP_TOGETHER = 0.125  # of the tuples that others are pushed at a time: look-ups take long


@dataclass(frozen=True)
class ProbeSize:
    """How much is measured: relations of these ``rows``, ``seconds`` for each run, ``pushed`` tuples at a time.

    What an operator takes for a pass over R, whatever R is, and what it takes for each row of R can only be told apart
    with relations of two sizes. Runs are repeated until ``limit_s`` have passed.
    """

    rows: tuple[int, int] = (300_000, 3_000_000)
    seconds: float = 0.12
    pushed: int = 75_000
    limit_s: float = 44.0


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
    _Setting(0, 0.04),  # too little to read ahead
    _Setting(0, 0.04, drained=0.08),  # the same, for few tuples: hardly anything but that
    _Setting(0, 0.06),
    _Setting(0, 0.2),
    _Setting(0, 0.6),
    _Setting(0, 0.6, columns=2),
    _Setting(1, 0.02),
    _Setting(1, 0.08),
    _Setting(1, 0.02, drained=0.03),
    _Setting(1, 0.1, drained=0.1),
    _Setting(1, 0.3, drained=1.0),
    _Setting(1, 0.3, columns=2, drained=1.0),
    _Setting(1, 0.3, exponent=1.5, drained=1.0),  # many results of the same row
)
_SMALL = (_Setting(0, 0.25), _Setting(0, 0.6), _Setting(0, 0.6, columns=2))
_SETTINGS = (*_SMALL, _Setting(1, 0.02), _Setting(1, 0.08))
_ENGINE_SETTINGS = (
    _Setting(1, 0.3, exponent=1.0, drained=0.35),
    _Setting(1, 0.1, exponent=1.0, drained=0.35),
    _Setting(1, 0.1, exponent=1.3, drained=0.35),
    _Setting(1, 0.1, exponent=1.6, drained=0.35),  # hardly anything but look-ups
    _Setting(1, 0.1, exponent=0.6, drained=0.35),
    _Setting(0, 0.05, exponent=1.5, drained=1.5),  # small batches of results
)
_LOOK_UP_SETTINGS = (
    *_SMALL,
    _Setting(1, 0.0035),  # the larger a tree, the longer its look-ups take
    _Setting(1, 0.0035, exponent=1.5),
    _Setting(1, 0.01),
)
_RESIDENT_SETTINGS = (_Setting(0, 1.5), _Setting(0, 3.0), _Setting(0, 3.0, columns=2), _Setting(1, 1.2))


def measure_operators(
    folder: Path,
    progress: Progress = unwatched,
    halfway: Callable[[], None] = lambda: None,
    size: ProbeSize = FULL_SIZE,
) -> OperatorRuns:
    """Run all operators, with relations that are made in ``folder`` and removed again.

    Call ``halfway`` once, never within a run: when all settings have run once, or earlier if half of ``limit_s`` is
    over. The pulse is taken again afterwards, so that the next run is judged by a fresh one.
    """
    began_s, is_halfway = time.perf_counter(), False
    with TemporaryDirectory(prefix=".semistream-calibrate-", dir=folder) as scratch:
        relations = [_build(Path(scratch) / str(rows), rows) for rows in size.rows]
        with pulse_of_joins(relations[-1]) as pulse:
            tried = {kind: [_Tries(each, pulse) for each in _settings(kind)] for kind in OPERATORS.values()}
            # All others come between two runs of a setting: by then it may no longer be disturbed.
            for turn in range(_MOST_TRIES):
                for kind in tried if turn == 0 else _REPEATED:
                    for tries in tried[kind]:
                        spent = (time.perf_counter() - began_s) / size.limit_s
                        progress(min(max(turn / _MOST_TRIES, spent), 1.0))
                        if turn == 0 or (spent < 1 and len(tries.calm) < _CALM_RUNS):
                            tries.add(kind, relations[tries.setting.relation], _size(kind, size))
                        if not is_halfway and (turn > 0 or spent >= 0.5):
                            is_halfway = True
                            halfway()
                            pulse.beat()
            runs = {kind: [part for tries in settings for part in tries.typical] for kind, settings in tried.items()}
    progress(1.0)
    return OperatorRuns(runs)


class _Tries:
    """Runs of an operator in one setting."""

    def __init__(self, setting: _Setting, pulse: MachinePulse) -> None:
        self.setting = setting
        self._pulse = pulse
        self._runs: list[tuple[float, list[RunPart]]] = []  # with the slower of the beats before and after

    def add(self, kind: type[SemiStreamJoin], relation: Relation, size: ProbeSize) -> None:
        """Run it once more."""
        before_s, parts = self._pulse.last_s, _run(kind, relation, self.setting, size)
        self._runs.append((max(before_s, self._pulse.beat()), parts))

    @property
    def calm(self) -> list[list[RunPart]]:
        """The runs that were not disturbed."""
        return [parts for beat_s, parts in self._runs if self._pulse.is_calm(beat_s)]

    @property
    def typical(self) -> list[RunPart]:
        """The middle one of these, or the one that was disturbed least; without parts if there is too little memory."""
        runs = sorted(self.calm, key=_per_unit_s) or [min(self._runs, key=itemgetter(0))[1]]
        return runs[len(runs) // 2]


def _per_unit_s(parts: list[RunPart]) -> float:
    """By which runs of the same setting are compared."""
    return sum(part.all_s for part in parts) / max(sum(float(part.work.sum()) for part in parts), 1.0)


def _size(kind: type[SemiStreamJoin], size: ProbeSize) -> ProbeSize:
    """How much of an operator is measured, in each setting."""
    seconds = size.seconds if kind in _REPEATED else _OTHERS * size.seconds
    pushed = int(size.pushed * _LOOKED_UP_TOGETHER) if kind is IndexNestedLoopJoin else size.pushed
    return replace(size, seconds=seconds, pushed=max(pushed, 1))


def _settings(kind: type[SemiStreamJoin]) -> Sequence[_Setting]:
    """In which settings an operator is run; not one with a cache that the engine tells of."""
    own = {
        SweepJoin: _SWEEP_SETTINGS,
        EngineJoin: _ENGINE_SETTINGS,
        ResidentJoin: _RESIDENT_SETTINGS,
        IndexNestedLoopJoin: _LOOK_UP_SETTINGS,
    }
    return own.get(kind, () if issubclass(kind, FrontStage) else _SETTINGS)


def _run(kind: type[SemiStreamJoin], relation: Relation, setting: _Setting, size: ProbeSize) -> list[RunPart]:
    """The parts of a run.

    There are no parts if the memory is too small. A stream that is drained has two, what is done while it is pushed and
    when it is flushed: some operators only gather tuples as long as there is room.
    """
    stream = _stream(relation.num_rows, setting.exponent)
    names = [f"c{i}" for i in range(setting.columns)]
    options: dict[str, Any] = {"cache_share": 0.25} if issubclass(kind, FrontStage) else {}
    memory = int(setting.memory * relation.nbytes)
    try:
        disk_of_its_own = relation.disk("auto")  # so that it does not go by an earlier profile
        operator = kind(
            relation, stream.schema, on="key", memory=memory, columns=names, disk=disk_of_its_own, **options
        )
    except BudgetError:
        return []
    with operator:
        source, meter = _Source(operator, stream, size.pushed), _Meter(operator, setting)
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
        source.push_for(size.seconds / 2)  # kernels are loaded, and what can wait does
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
        """Push for so long, and until some tuples were answered: an operator may gather them for longer than that."""
        start, answered = time.perf_counter(), self._operator.stats.rows_done
        while time.perf_counter() - start < seconds or self._operator.stats.rows_done == answered:
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
    """Tells what an operator has done since the last time, and what that took."""

    def __init__(self, operator: SemiStreamJoin, setting: _Setting) -> None:
        self._operator = operator
        self._columns = setting.columns
        self._rows = operator.relation.num_rows
        self._frequencies = KeyFrequencies.zipf(setting.exponent, self._rows)
        self._last = self._now()

    def read(self) -> RunPart:
        before, self._last = self._last, self._now()
        work, (all_s, processor_s, nbytes) = self._last[0] - before[0], self._last[1] - before[1]
        if not self._operator.stats.cache_hits:  # there is nothing yet to look them up in
            work[BATCHES] += work[ANSWERS]
            work[[LOOKED_UP, MISSED, ANSWERS]] = 0
        work[FRESH] = self._columns * self._fresh_rows(work[ANSWERED], work[PROBES] / self._rows)
        return RunPart(work, min(processor_s, all_s), all_s, nbytes)

    def _fresh_rows(self, tuples: float, passes: float) -> float:
        """Rows of R that are in results for the first time in a pass, in so many passes that serve so many tuples."""
        return passes * self._frequencies.distinct(tuples / passes) if passes else 0.0

    def _now(self) -> tuple[Floats, Floats]:
        stats, cached = self._operator.stats, isinstance(self._operator, FrontStage)
        taken = np.array([time.perf_counter(), time.process_time(), stats.bytes_read])
        return _counts(stats, self._columns, cached=cached), taken


def _counts(stats: JoinStats, columns: int, *, cached: bool) -> Floats:
    """The units of work that `OperatorCosts` has seconds for, but for fresh values; tuples may be looked up in a tuple
    cache first.
    """
    hits = stats.cache_hits if cached else 0
    answered = stats.rows_done - hits
    entered = stats.rows_in - hits
    looked_up = stats.rows_in if cached else 0
    values = columns * stats.outputs
    batches, answers = (0, stats.batches) if cached else (stats.batches, 0)
    work = [answered, values, stats.probes, stats.steps, looked_up, stats.packets, batches, entered]
    missed = answered if cached else 0
    return np.array([*work, stats.waits, missed, stats.level_probes, stats.pages_read, 0.0, answers], np.float64)


def _build(path: Path, rows: int) -> Relation:
    keys = np.random.default_rng(0).permutation(rows)
    columns = {f"c{i}": keys + i for i in range(_COLUMNS)}
    return Relation.build(pa.table({"key": keys, **columns}), path, key="key")


@lru_cache(maxsize=8)
def _stream(rows: int, exponent: float) -> pa.RecordBatch:
    return next(Zipf(exponent, rows, seed=1).batches(_STREAM_ROWS))
