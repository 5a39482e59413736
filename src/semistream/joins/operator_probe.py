"""What operators take of the processor for each unit of their work, measured by running them on a small relation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.errors import BudgetError
from semistream.joins.base import SemiStreamJoin
from semistream.joins.candidates import OPERATORS
from semistream.joins.front_stage import FrontStage
from semistream.joins.stats import JoinStats
from semistream.relation import Relation
from semistream.streams import Zipf
from semistream.tuning.fit import fit_costs
from semistream.tuning.frequencies import Floats
from semistream.tuning.machine import DEFAULT_MACHINE, Machine, OperatorCosts
from semistream.tuning.progress import Progress, unwatched

_COLUMNS = 14
_STREAM_ROWS = 1_000_000
_TRIES = 2


@dataclass(frozen=True)
class ProbeSize:
    """How much is measured: relations of these ``rows``, ``seconds`` for each run, ``pushed`` tuples at a time.

    What an operator takes for a pass over R, whatever R is, and what it takes for each row of R can only be told apart
    with relations of two sizes.
    """

    rows: tuple[int, int] = (120_000, 600_000)
    seconds: float = 0.1
    pushed: int = 50_000


FULL_SIZE = ProbeSize()


@dataclass(frozen=True)
class _Setting:
    """A run: which R, memory as a share of it, columns of it that come out, and the stream's skew."""

    relation: int
    memory: float
    columns: int = _COLUMNS
    exponent: float = 0.0


_SETTINGS = (
    _Setting(0, 0.3),
    _Setting(0, 0.6),
    _Setting(0, 0.6, columns=2),
    _Setting(1, 0.06),
    _Setting(1, 0.12),
    _Setting(1, 0.3),
    _Setting(1, 0.3, columns=2),
)
_CACHED = (_Setting(1, 0.3, exponent=1.5), _Setting(1, 0.3, columns=2, exponent=1.5), _Setting(1, 0.1, exponent=1.2))


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
            runs = partial(_runs, kind, relations, size)
            if issubclass(kind, FrontStage):
                measured[kind.name] = _with_look_ups(measured[kind.wraps.name], runs(_CACHED))
            else:
                measured[kind.name] = _costs(runs(_SETTINGS), DEFAULT_MACHINE.operators[kind.name])
    progress(1.0)
    return measured


def _costs(runs: list[tuple[Floats, float]], usual: OperatorCosts) -> OperatorCosts:
    """The costs that fit runs best; there are no look-ups in a cache."""
    work = np.array([counts for counts, _ in runs])
    asked = work.any(axis=0)
    costs = np.zeros(work.shape[1])
    times = np.array([taken_s for _, taken_s in runs])
    costs[asked] = fit_costs(work[:, asked], times, np.array(astuple(usual))[asked])
    return OperatorCosts(*costs.tolist())


def _with_look_ups(behind: OperatorCosts, runs: list[tuple[Floats, float]]) -> OperatorCosts:
    """The costs of a join behind a cache, and what a look-up takes: what these leave of the time of runs."""
    known = np.array(astuple(behind))
    found = [(taken_s - float(work @ known)) / work[_LOOKED_UP] for work, taken_s in runs if work[_LOOKED_UP]]
    return replace(behind, hit_s=max(float(np.median(found)), 0.0) if found else 0.0)


def _runs(
    kind: type[SemiStreamJoin], relations: list[Relation], size: ProbeSize, settings: Sequence[_Setting]
) -> list[tuple[Floats, float]]:
    """Each setting several times, of which the fastest counts: what disturbs a run makes it slower."""
    best: list[tuple[Floats, float]] = []
    for setting in settings:
        tries = [run for _ in range(_TRIES) for run in _run(kind, relations[setting.relation], setting, size)]
        if tries:
            best.append(min(tries, key=lambda run: run[1] / max(run[0].sum(), 1.0)))
    return best


def _run(
    kind: type[SemiStreamJoin], relation: Relation, setting: _Setting, size: ProbeSize
) -> Iterator[tuple[Floats, float]]:
    """The work of a run by its counts, in the order of `OperatorCosts`, and how long it took."""
    stream = _stream(relation.num_rows, setting.exponent)
    names = [f"c{i}" for i in range(setting.columns)]
    options: dict[str, Any] = {"cache_share": 0.25} if issubclass(kind, FrontStage) else {}
    memory = int(setting.memory * relation.nbytes)
    try:
        operator = kind(relation, stream.schema, on="key", memory=memory, columns=names, **options)
    except BudgetError:
        return
    with operator:
        pushed = _push(operator, stream, 0, size, size.seconds / 2)  # kernels are loaded, and caches filled
        before, start = _counts(operator.stats, setting.columns), time.perf_counter()
        _push(operator, stream, pushed, size, size.seconds)
        yield _counts(operator.stats, setting.columns) - before, time.perf_counter() - start


def _push(operator: SemiStreamJoin, stream: pa.RecordBatch, pushed: int, size: ProbeSize, seconds: float) -> int:
    """Push a part of the stream for so long, and flush; gives how far it came. When the stream ends it begins anew."""
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in operator.push(stream.slice(pushed % stream.num_rows, size.pushed)):
            pass
        pushed += size.pushed
    for _ in operator.flush():
        pass
    return pushed


_LOOKED_UP = 4  # the place of `OperatorCosts.hit_s`


def _counts(stats: JoinStats, columns: int) -> Floats:
    joined = stats.rows_in - stats.cache_hits
    looked_up = stats.rows_in if stats.cache_hits else 0
    work = [joined, columns * stats.outputs, stats.probes, stats.steps, looked_up, stats.packets]
    return np.array(work, np.float64)


def _build(path: Path, rows: int) -> Relation:
    keys = np.random.default_rng(0).permutation(rows)
    columns = {f"c{i}": keys + i for i in range(_COLUMNS)}
    return Relation.build(pa.table({"key": keys, **columns}), path, key="key")


@lru_cache(maxsize=8)
def _stream(rows: int, exponent: float) -> pa.RecordBatch:
    return next(Zipf(exponent, rows, seed=1).batches(_STREAM_ROWS))
