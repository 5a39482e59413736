"""Candidates: the operators that a join can be done by, as the tuner sees them.

The tuner of a join: what it chooses among, and what it takes unless another is surely faster.
"""

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
"""Operators whose models err alike: the engine is the sweep, behind a cache if that pays; with all of R in memory the
same kernels match and gather, and nothing else is left to be wrong about."""

_ROWS_SEEN = 1 << 12  # of a sample, by which the bytes of a row are told


@dataclass(frozen=True)
class OperatorCandidate:
    """An operator for one join."""

    kind: type[SemiStreamJoin]
    facts: JoinFacts

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.kind.name

    @property
    def settings(self) -> Sequence[Options]:
        """The engine decides on its cache; a front stage that was named has the share that it has by default."""
        if issubclass(self.kind, EngineJoin):
            return [{"cache_share": share} for share in CACHE_SHARES]
        return [{}]

    def arranged(self, memory_bytes: int, options: Options) -> Arranged:
        """The operator's model in a memory, and how it would split that."""
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
    """The operators that take a join, with R as they would read it."""
    read = relation.reading(spec.relation_columns)
    facts = JoinFacts(read, spec.laid_out(read.layout), None if sample is None else sample.slice(0, _ROWS_SEEN))
    return [OperatorCandidate(kind, facts) for kind in kinds if _takes(kind, relation, spec)]


def usual_operator(spec: JoinSpec) -> type[SemiStreamJoin]:
    """What is mostly the fastest that takes a condition."""
    by_access: dict[str, type[SemiStreamJoin]] = {"equality": EngineJoin, "range": SweepJoin, "scan": MeshJoin}
    return by_access[spec.condition.access]


def last_resorts(relation: AnyRelation) -> frozenset[str]:
    """Operators that are to be chosen only if there is too little memory for all others.

    Look-ups go to a copy of R in another store. To make one may take long, and as much room as R.
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
    relation: AnyRelation, spec: JoinSpec, workload: Workload, machine: Machine, sample: pa.RecordBatch | None = None
) -> Tuner:
    """Chooses among all operators that take a join; ``sample`` are rows of its stream."""
    return Tuner(
        workload,
        machine,
        candidates(relation, spec, sample),
        usual=usual_operator(spec).name,
        last_resort=last_resorts(relation),
        akin=AKIN,
    )
