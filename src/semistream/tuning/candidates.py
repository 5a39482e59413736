"""Candidate operators of a join, and the tuner that chooses among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.costs.machine import Machine
from semistream.costs.workload import Workload
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cache.cached_mesh import CachedMeshJoin
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.condition.spec import JoinSpec
from semistream.joins.engine.operator import CACHE_SHARES, EngineJoin
from semistream.joins.hybrid.operator import HybridJoin
from semistream.joins.join_facts import JoinFacts
from semistream.joins.lookup.lmdb_store import has_store
from semistream.joins.lookup.nested_loop import IndexNestedLoopJoin
from semistream.joins.lookup.resident import ResidentJoin
from semistream.joins.mesh.adaptive import AdaptiveMeshJoin
from semistream.joins.mesh.operator import MeshJoin
from semistream.joins.ssij.operator import SemiStreamingIndexJoin
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import AnyRelation, ParquetRelation, Relation
from semistream.tuning.tuner import Arranged, Options, Tuner

OPERATORS: dict[str, type[SemiStreamJoin]] = {
    kind.name: kind
    for kind in (
        EngineJoin,
        MeshJoin,
        AdaptiveMeshJoin,
        CachedMeshJoin,
        HybridJoin,
        SemiStreamingIndexJoin,
        SweepJoin,
        IndexNestedLoopJoin,
        ResidentJoin,
    )
}

AKIN = frozenset({EngineJoin.name, SweepJoin.name, ResidentJoin.name})
"""Operators whose models share their errors. The engine is the sweep, behind a cache if that pays. With all of R in
memory, the same kernels match and gather rows, and no other cost remains to be mispredicted."""

_ROWS_SEEN = 1 << 12  # rows of the sample from which the size of a row is estimated


@dataclass(frozen=True)
class OperatorCandidate:
    """An operator as a candidate for one join."""

    kind: type[SemiStreamJoin]
    facts: JoinFacts

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.kind.name

    @property
    def settings(self) -> Sequence[Options]:
        """Options to choose from: cache shares for the engine, none for other operators, which use their defaults."""
        if issubclass(self.kind, EngineJoin):
            return [{"cache_share": share} for share in CACHE_SHARES]
        return [{}]

    def arranged(self, memory_bytes: int, options: Options) -> Arranged:
        """Return the operator's model in a memory, and its split of that memory."""
        memory = MemoryBudget(memory_bytes)
        if issubclass(self.kind, FrontStage):
            model = self.kind.model(self.facts, memory, **options)
        else:
            model = self.kind.model(self.facts, memory)
        return Arranged(model, {**memory.by_name, "results": memory.limit - memory.used})


def candidates(
    relation: AnyRelation,
    spec: JoinSpec,
    sample: pa.RecordBatch | None = None,
    kinds: Iterable[type[SemiStreamJoin]] = tuple(OPERATORS.values()),
) -> list[OperatorCandidate]:
    """Return the operators that support a join, with R reduced to the columns they would read."""
    read = relation.reading(spec.relation_columns)
    facts = JoinFacts(read, spec.laid_out(read.layout), None if sample is None else sample.slice(0, _ROWS_SEEN))
    return [OperatorCandidate(kind, facts) for kind in kinds if _takes(kind, relation, spec)]


def usual_operator(spec: JoinSpec) -> type[SemiStreamJoin]:
    """Return the operator that is usually the fastest for the condition of a join."""
    by_access: dict[str, type[SemiStreamJoin]] = {"equality": EngineJoin, "range": SweepJoin, "scan": MeshJoin}
    return by_access[spec.condition.access]


def last_resorts(relation: AnyRelation) -> frozenset[str]:
    """Return the operators to choose only if the memory is too small for all others.

    Look-ups need a copy of R in another store. Creating it may take long, and as much disk space as R.
    """
    ready = isinstance(relation, Relation) and has_store(relation)
    return frozenset() if ready else frozenset({IndexNestedLoopJoin.name})


def _takes(kind: type[SemiStreamJoin], relation: AnyRelation, spec: JoinSpec) -> bool:
    condition = spec.condition
    if isinstance(relation, ParquetRelation):
        scans = kind.takes_unclustered or (issubclass(kind, FrontStage) and kind.wraps.takes_unclustered)
        return scans and (condition.computes_codes or not kind.needs_equality)
    if kind.needs_equality:
        return condition.access == "equality"
    return condition.access != "scan" or not kind.needs_index


def join_tuner(
    relation: AnyRelation,
    spec: JoinSpec,
    workload: Workload,
    machine: Machine,
    sample: pa.RecordBatch | None = None,
    *,
    holds_small: bool = False,
) -> Tuner:
    """Return a tuner over all operators that support a join; ``sample`` has rows of its stream.

    With ``holds_small``, an R that fits in the memory is held there, as on Spark.
    """
    return Tuner(
        workload,
        machine,
        candidates(relation, spec, sample),
        usual=usual_operator(spec).name,
        last_resort=last_resorts(relation),
        first=ResidentJoin.name if holds_small else None,
        akin=AKIN,
    )
