"""Divide the memory of a pipeline among its steps, by the predicted cost of their joins."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from semistream.costs.profiles import machine_for
from semistream.errors import BudgetError
from semistream.joins.condition.spec import JoinSpec
from semistream.relation import Relation
from semistream.relation.format.manifest import CURRENT, get_current
from semistream.tuning.candidates import join_tuner
from semistream.tuning.explain import keys_and_number, workload_of
from semistream.tuning.memory_shares import TupleSeconds, share_memory

_SKEW = 1.0  # assumed Zipf exponent of a stream not seen yet
_BATCH_ROWS = 500_000
_SPARE = 0.02  # penalty, as a share of a tuple's time, for memory far below R's size: larger relations get the spare
_LEAST = 8  # a step gets at least 1/8 of an equal share
_EMPTY_S, _EMPTY_BYTES = 2e-7, 16 << 20  # assumed cost of a tuple, in this memory, for an empty R that will grow


def share_steps(relations: list[Path], total: int) -> list[int]:
    """Return the bytes for each of the relations that rows are joined with one after the other.

    The prediction assumes keys by Zipf's law, in batches that are drained. Every step gets a minimum share, because its
    real cost may exceed the predicted one.
    """
    versions = (get_current(path) if (path / CURRENT).exists() else None for path in relations)
    return list(_shares(tuple(zip(relations, versions, strict=True)), total))


@lru_cache(maxsize=8)  # a pipeline is planned twice: to check it before Spark starts, and to run it
def _shares(relations: tuple[tuple[Path, int | None], ...], total: int) -> list[int]:
    least = total // (len(relations) * _LEAST)
    try:
        return share_memory([_with_least(_seconds(path, version), least) for path, version in relations], total)
    except BudgetError:
        return [total // len(relations)] * len(relations)  # planning each step will report what it needs


def _with_least(seconds: TupleSeconds, least: int) -> TupleSeconds:
    return lambda nbytes: math.inf if nbytes < least else seconds(nbytes)


def _seconds(path: Path, version: int | None) -> TupleSeconds:
    relation = None if version is None else Relation.open(path, version)
    if relation is None or not relation.num_pages:
        return lambda nbytes: _EMPTY_S * math.sqrt(_EMPTY_BYTES / max(nbytes, 1))
    stream = keys_and_number(relation, list(relation.key))
    spec = JoinSpec.of(relation, stream, on=list(relation.key), how="left")
    workload = workload_of(relation, spec, zipf=_SKEW, batch_rows=_BATCH_ROWS)
    tuner = join_tuner(relation, spec, workload, machine_for(relation.path), holds_small=True)

    def seconds(nbytes: int) -> float:
        try:
            taken_s = 1 / tuner.chosen(nbytes).rate
        except BudgetError:
            return math.inf
        return taken_s * (1 + _SPARE * relation.nbytes / (relation.nbytes + nbytes))

    return seconds
