"""semistream: join a fast stream with a relation far larger than memory, inside one byte budget.

The public modules are `semistream`, `semistream.spark`, `semistream.windows`, `semistream.shedding` and
`semistream.datasets`; their public names are those in ``__all__``. Everything else is internal and may change in any
release.

Each public name is imported on first use, so that ``import semistream`` and the command line start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from semistream.budget import MemoryBudget as MemoryBudget
    from semistream.errors import SemistreamError as SemistreamError
    from semistream.joined_stream import JoinedStream as JoinedStream
    from semistream.joined_stream import join as join
    from semistream.joins.base import SemiStreamJoin as SemiStreamJoin
    from semistream.joins.cache.cached_mesh import CachedMeshJoin as CachedMeshJoin
    from semistream.joins.cache.front_stage import FrontStage as FrontStage
    from semistream.joins.engine.operator import EngineJoin as EngineJoin
    from semistream.joins.hybrid.operator import HybridJoin as HybridJoin
    from semistream.joins.lookup.nested_loop import IndexNestedLoopJoin as IndexNestedLoopJoin
    from semistream.joins.lookup.resident import ResidentJoin as ResidentJoin
    from semistream.joins.mesh.adaptive import AdaptiveMeshJoin as AdaptiveMeshJoin
    from semistream.joins.mesh.cost_model import MeshFactors as MeshFactors
    from semistream.joins.mesh.operator import MeshJoin as MeshJoin
    from semistream.joins.parts.stats import JoinStats as JoinStats
    from semistream.joins.ssij.operator import SemiStreamingIndexJoin as SemiStreamingIndexJoin
    from semistream.joins.sweep.operator import SweepJoin as SweepJoin
    from semistream.relation.parquet.parquet_relation import ParquetRelation as ParquetRelation
    from semistream.relation.relation import Relation as Relation
    from semistream.tuning.calibration.calibrate import calibrate as calibrate
    from semistream.tuning.explain import explain as explain
    from semistream.tuning.explanation import Explanation as Explanation

_HOMES = {
    "AdaptiveMeshJoin": "semistream.joins.mesh.adaptive",
    "CachedMeshJoin": "semistream.joins.cache.cached_mesh",
    "EngineJoin": "semistream.joins.engine.operator",
    "Explanation": "semistream.tuning.explanation",
    "FrontStage": "semistream.joins.cache.front_stage",
    "HybridJoin": "semistream.joins.hybrid.operator",
    "IndexNestedLoopJoin": "semistream.joins.lookup.nested_loop",
    "JoinStats": "semistream.joins.parts.stats",
    "JoinedStream": "semistream.joined_stream",
    "MemoryBudget": "semistream.budget",
    "MeshFactors": "semistream.joins.mesh.cost_model",
    "MeshJoin": "semistream.joins.mesh.operator",
    "ParquetRelation": "semistream.relation.parquet.parquet_relation",
    "Relation": "semistream.relation.relation",
    "ResidentJoin": "semistream.joins.lookup.resident",
    "SemiStreamJoin": "semistream.joins.base",
    "SemiStreamingIndexJoin": "semistream.joins.ssij.operator",
    "SemistreamError": "semistream.errors",
    "SweepJoin": "semistream.joins.sweep.operator",
    "calibrate": "semistream.tuning.calibration.calibrate",
    "explain": "semistream.tuning.explain",
    "join": "semistream.joined_stream",
}

__all__ = [*_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("semistream")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
