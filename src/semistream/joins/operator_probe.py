"""What operators take of the processor for each unit of their work, measured by running them on a small relation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
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
from semistream.tuning.machine import Machine, OperatorCosts
from semistream.tuning.progress import Progress, unwatched

_COLUMNS = 14
_STREAM_ROWS = 2_000_000
_PUSHED = 50_000  # rows at a time


@dataclass(frozen=True)
class ProbeSize:
    """How much is measured: an R of ``rows``, and ``seconds`` for each run."""

    rows: int = 400_000
    seconds: float = 0.25


FULL_SIZE = ProbeSize()


@dataclass(frozen=True)
class _Setting:
    """A run: memory as a share of R, columns of R that come out, and the stream's skew."""

    memory: float
    columns: int
    exponent: float = 0.0


_SETTINGS = (
    _Setting(0.04, _COLUMNS),
    _Setting(0.08, _COLUMNS),
    _Setting(0.08, 2),
    _Setting(0.3, _COLUMNS),
    _Setting(0.3, 2),
    _Setting(0.6, _COLUMNS),
)
_CACHED = (_Setting(0.3, _COLUMNS, 1.5), _Setting(0.3, 2, 1.5), _Setting(0.1, _COLUMNS, 1.2))
_KINDS = len(OPERATORS)


def measure_operators(
    folder: Path, machine: Machine, progress: Progress = unwatched, size: ProbeSize = FULL_SIZE
) -> dict[str, OperatorCosts]:
    """`OperatorCosts` of all operators, by name, with a relation that is made in ``folder`` and removed again."""
    del machine  # what the disk takes is hidden behind the processor's work, or shows in the time of a step
    with TemporaryDirectory(prefix=".semistream-calibrate-", dir=folder) as scratch:
        relation = _build(Path(scratch) / "r", size.rows)
        streams = {e: _stream(size.rows, e) for e in {s.exponent for s in (*_SETTINGS, *_CACHED)}}
        measured: dict[str, OperatorCosts] = {}
        for done, (name, kind) in enumerate(OPERATORS.items()):
            progress(done / _KINDS)
            measured[name] = _costs(kind, relation, streams, size.seconds)
    progress(1.0)
    return measured


def _costs(
    kind: type[SemiStreamJoin], relation: Relation, streams: dict[float, pa.RecordBatch], seconds: float
) -> OperatorCosts:
    settings = (*_SETTINGS, *_CACHED) if issubclass(kind, FrontStage) else _SETTINGS
    runs = [run for setting in settings for run in _run(kind, relation, streams[setting.exponent], setting, seconds)]
    work = np.array([counts for counts, _ in runs])
    asked = work.any(axis=0)  # an operator without a cache has no look-ups
    costs = np.zeros(work.shape[1])
    costs[asked] = fit_costs(work[:, asked], np.array([taken for _, taken in runs]))
    tuple_s, value_s, row_s, step_s, hit_s = costs.tolist()
    return OperatorCosts(tuple_s=tuple_s, value_s=value_s, row_s=row_s, step_s=step_s, hit_s=hit_s)


def _run(
    kind: type[SemiStreamJoin], relation: Relation, stream: pa.RecordBatch, setting: _Setting, seconds: float
) -> Iterator[tuple[Floats, float]]:
    """The work of a run by its counts, in the order of `OperatorCosts`, and how long it took."""
    names = [f"c{i}" for i in range(setting.columns)]
    options: dict[str, Any] = {}
    if issubclass(kind, FrontStage):
        options["cache_share"] = 0.25 if setting.exponent else 0.0
    memory = int(setting.memory * relation.nbytes)
    try:
        operator = kind(relation, stream.schema, on="key", memory=memory, columns=names, **options)
    except BudgetError:
        return
    with operator:
        pushed = _push(operator, stream, 0, seconds / 2)  # kernels are loaded, and caches filled
        before, start = _counts(operator.stats, setting.columns), time.perf_counter()
        _push(operator, stream, pushed, seconds)
        yield _counts(operator.stats, setting.columns) - before, time.perf_counter() - start


def _push(operator: SemiStreamJoin, stream: pa.RecordBatch, pushed: int, seconds: float) -> int:
    """Push a part of the stream for so long, and flush; gives how far it came. When the stream ends it begins anew."""
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in operator.push(stream.slice(pushed % stream.num_rows, _PUSHED)):
            pass
        pushed += _PUSHED
    for _ in operator.flush():
        pass
    return pushed


def _counts(stats: JoinStats, columns: int) -> Floats:
    joined = stats.rows_in - stats.cache_hits
    looked_up = stats.rows_in if stats.cache_hits else 0
    return np.array([joined, columns * stats.outputs, stats.probes, stats.steps, looked_up], np.float64)


def _build(path: Path, rows: int) -> Relation:
    keys = np.random.default_rng(0).permutation(rows)
    columns = {f"c{i}": keys + i for i in range(_COLUMNS)}
    return Relation.build(pa.table({"key": keys, **columns}), path, key="key")


def _stream(rows: int, exponent: float) -> pa.RecordBatch:
    return next(Zipf(exponent, rows, seed=1).batches(_STREAM_ROWS))
