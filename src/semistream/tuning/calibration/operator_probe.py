"""Measure the work and processor time of operators by running them on small relations.

Counts CPU time only, because the disk is measured separately (`disk_probe`). Operators that block on each read are the
exception: for them wall-clock time is kept as well.

A shared machine is slower for seconds at a time. If the disk is served by the same processors, as in some virtual
machines, it is not even read while an operator computes. A `MachinePulse` is therefore taken before and after each run,
and disturbed runs of the operators behind the usual choice are repeated.
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

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.datasets import Zipf
from semistream.errors import BudgetError
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.engine.operator import EngineJoin
from semistream.joins.lookup.nested_loop import IndexNestedLoopJoin
from semistream.joins.lookup.resident import ResidentJoin
from semistream.joins.parts.stats import JoinStats
from semistream.joins.sweep.operator import SweepJoin
from semistream.kernels.array_types import Floats
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
_STREAM_ROWS = 6_000_000  # large enough that the stream hardly repeats: a cache would know the tuples the second time
_REPEATED = (SweepJoin, EngineJoin)  # operators behind the usual choice
_CALM_RUNS, _MOST_TRIES = 3, 8  # of the repeated operators; the others run once
_OTHERS = 0.5  # duration of a run of the others, relative to the repeated ones
_LOOKED_UP_TOGETHER = 0.125  # tuples pushed at a time for look-ups, relative to the others: look-ups are slow


@dataclass(frozen=True)
class ProbeSize:
    """Extent of the measurement: relations of ``rows``, ``seconds`` per run, and ``pushed`` tuples at a time.

    It takes relations of two sizes to tell the fixed cost of a pass over R from the cost per row of R. Runs are
    repeated for at most ``limit_s`` seconds.
    """

    rows: tuple[int, int] = (300_000, 3_000_000)
    seconds: float = 0.12
    pushed: int = 75_000
    limit_s: float = 44.0


FULL_SIZE = ProbeSize()


@dataclass(frozen=True)
class _Setting:
    """Setting of a run: index of R, memory as a share of R, columns of R in the result, Zipf exponent of the stream.

    The stream is endless if ``drained`` is 0; else it is flushed after ``drained`` tuples per row of R.
    """

    relation: int
    memory: float
    columns: int = _COLUMNS
    exponent: float = 0.0
    drained: float = 0.0


_SWEEP_SETTINGS = (
    _Setting(0, 0.04),  # too little memory to read ahead
    _Setting(0, 0.04, drained=0.08),  # the same for few tuples: waiting dominates
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
    _Setting(1, 0.3, exponent=1.5, drained=1.0),  # many results with the same row of R
)
_SMALL = (_Setting(0, 0.25), _Setting(0, 0.6), _Setting(0, 0.6, columns=2))
_SETTINGS = (*_SMALL, _Setting(1, 0.02), _Setting(1, 0.08))
_ENGINE_SETTINGS = (
    _Setting(1, 0.3, exponent=1.0, drained=0.35),
    _Setting(1, 0.1, exponent=1.0, drained=0.35),
    _Setting(1, 0.1, exponent=1.3, drained=0.35),
    _Setting(1, 0.1, exponent=1.6, drained=0.35),  # look-ups dominate
    _Setting(1, 0.1, exponent=0.6, drained=0.35),
    _Setting(0, 0.05, exponent=1.5, drained=1.5),  # small batches of results
)
_LOOK_UP_SETTINGS = (
    *_SMALL,
    _Setting(1, 0.0035),  # look-ups take longer in a larger tree
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
    """Run all operators on temporary relations in ``folder``.

    Call ``halfway`` once, never within a run: when all settings have run once, or earlier if half of ``limit_s`` is
    over. The pulse is taken again afterwards, so that the next run has a fresh one.
    """
    began_s, is_halfway = time.perf_counter(), False
    with TemporaryDirectory(prefix=".semistream-calibrate-", dir=folder) as scratch:
        relations = [_build(Path(scratch) / str(rows), rows) for rows in size.rows]
        with pulse_of_joins(relations[-1]) as pulse:
            tried = {kind: [_Tries(each, pulse) for each in _settings(kind)] for kind in OPERATORS.values()}
            # All other settings run between two runs of one, by which time a disturbance may be over.
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
    """Repeated runs of an operator in one setting."""

    def __init__(self, setting: _Setting, pulse: MachinePulse) -> None:
        self.setting = setting
        self._pulse = pulse
        self._runs: list[tuple[float, list[RunPart]]] = []  # each with the slower of the beats before and after it

    def add(self, kind: type[SemiStreamJoin], relation: Relation, size: ProbeSize) -> None:
        """Run the operator once more."""
        before_s, parts = self._pulse.last_s, _run(kind, relation, self.setting, size)
        self._runs.append((max(before_s, self._pulse.beat()), parts))

    @property
    def calm(self) -> list[list[RunPart]]:
        """Undisturbed runs."""
        return [parts for beat_s, parts in self._runs if self._pulse.is_calm(beat_s)]

    @property
    def typical(self) -> list[RunPart]:
        """Median of the undisturbed runs, or the least disturbed run; without parts if the memory is too small."""
        runs = sorted(self.calm, key=_per_unit_s) or [min(self._runs, key=itemgetter(0))[1]]
        return runs[len(runs) // 2]


def _per_unit_s(parts: list[RunPart]) -> float:
    """Return the seconds per unit of work, to compare runs of the same setting."""
    return sum(part.all_s for part in parts) / max(sum(float(part.work.sum()) for part in parts), 1.0)


def _size(kind: type[SemiStreamJoin], size: ProbeSize) -> ProbeSize:
    """Return the extent of the measurement of one operator."""
    seconds = size.seconds if kind in _REPEATED else _OTHERS * size.seconds
    pushed = int(size.pushed * _LOOKED_UP_TOGETHER) if kind is IndexNestedLoopJoin else size.pushed
    return replace(size, seconds=seconds, pushed=max(pushed, 1))


def _settings(kind: type[SemiStreamJoin]) -> Sequence[_Setting]:
    """Return the settings of an operator; none for other front stages, which get the cache costs of the engine."""
    own = {
        SweepJoin: _SWEEP_SETTINGS,
        EngineJoin: _ENGINE_SETTINGS,
        ResidentJoin: _RESIDENT_SETTINGS,
        IndexNestedLoopJoin: _LOOK_UP_SETTINGS,
    }
    return own.get(kind, () if issubclass(kind, FrontStage) else _SETTINGS)


def _run(kind: type[SemiStreamJoin], relation: Relation, setting: _Setting, size: ProbeSize) -> list[RunPart]:
    """Run an operator, and return the measured parts; none if the memory is too small.

    A drained stream gives two parts, the pushes and the flush, because some operators only gather tuples while they
    have room.
    """
    stream = _stream(relation.num_rows, setting.exponent)
    names = [f"c{i}" for i in range(setting.columns)]
    options: dict[str, Any] = {"cache_share": 0.25} if issubclass(kind, FrontStage) else {}
    memory = int(setting.memory * relation.nbytes)
    try:
        disk_of_its_own = relation.disk("auto")  # so that no earlier profile influences it
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
        source.push_for(size.seconds / 2)  # loads kernels, and fills the operator with waiting tuples
        meter.read()
        source.push_for(size.seconds)
        return [meter.read()]


class _Source:
    """A repeating stream, pushed to an operator some tuples at a time."""

    def __init__(self, operator: SemiStreamJoin, stream: pa.RecordBatch, rows: int) -> None:
        self._operator = operator
        self._stream = stream
        self._rows = rows
        self._pushed = 0

    def push_for(self, seconds: float) -> None:
        """Push for ``seconds``, or longer until some tuples are answered: an operator may gather them first."""
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
    """Meter of an operator's work and time since the last reading."""

    def __init__(self, operator: SemiStreamJoin, setting: _Setting) -> None:
        self._operator = operator
        self._columns = setting.columns
        self._rows = operator.relation.num_rows
        self._frequencies = KeyFrequencies.zipf(setting.exponent, self._rows)
        self._last = self._now()

    def read(self) -> RunPart:
        before, self._last = self._last, self._now()
        work, (all_s, processor_s, nbytes) = self._last[0] - before[0], self._last[1] - before[1]
        if not self._operator.stats.cache_hits:  # the cache is still empty, so nothing was looked up
            work[BATCHES] += work[ANSWERS]
            work[[LOOKED_UP, MISSED, ANSWERS]] = 0
        work[FRESH] = self._columns * self._fresh_rows(work[ANSWERED], work[PROBES] / self._rows)
        return RunPart(work, min(processor_s, all_s), all_s, nbytes)

    def _fresh_rows(self, tuples: float, passes: float) -> float:
        """Return the rows of R used for the first time in a pass, over all ``passes`` that serve ``tuples``."""
        return passes * self._frequencies.distinct(tuples / passes) if passes else 0.0

    def _now(self) -> tuple[Floats, Floats]:
        stats, cached = self._operator.stats, isinstance(self._operator, FrontStage)
        taken = np.array([time.perf_counter(), time.process_time(), stats.bytes_read])
        return _counts(stats, self._columns, cached=cached), taken


def _counts(stats: JoinStats, columns: int, *, cached: bool) -> Floats:
    """Return the units of work in the order of `OperatorCosts`, without fresh values.

    ``cached`` is true if a tuple cache precedes the join.
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
