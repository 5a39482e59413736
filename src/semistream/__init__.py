"""semistream: join a fast stream with a relation far larger than memory, inside one byte budget.

The names are loaded when they are first used, so that ``import semistream`` (and the command line) starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from semistream.version import __version__ as __version__

if TYPE_CHECKING:
    from semistream.budget import MemoryBudget
    from semistream.errors import SemistreamError
    from semistream.joins import (
        AdaptiveMeshJoin,
        CachedMeshJoin,
        EngineJoin,
        FrontStage,
        HybridJoin,
        IndexNestedLoopJoin,
        JoinedStream,
        JoinStats,
        MeshFactors,
        MeshJoin,
        ResidentJoin,
        SemiStreamingIndexJoin,
        SemiStreamJoin,
        SweepJoin,
        explain,
        join,
    )
    from semistream.joins.calibrate import calibrate
    from semistream.relation import ParquetRelation, Relation
    from semistream.tuning.explanation import Explanation

__all__ = [
    "AdaptiveMeshJoin",
    "CachedMeshJoin",
    "EngineJoin",
    "Explanation",
    "FrontStage",
    "HybridJoin",
    "IndexNestedLoopJoin",
    "JoinStats",
    "JoinedStream",
    "MemoryBudget",
    "MeshFactors",
    "MeshJoin",
    "ParquetRelation",
    "Relation",
    "ResidentJoin",
    "SemiStreamJoin",
    "SemiStreamingIndexJoin",
    "SweepJoin",
    "SemistreamError",
    "calibrate",
    "explain",
    "join",
]

_HOMES = {
    "AdaptiveMeshJoin": "semistream.joins",
    "CachedMeshJoin": "semistream.joins",
    "EngineJoin": "semistream.joins",
    "Explanation": "semistream.tuning.explanation",
    "FrontStage": "semistream.joins",
    "HybridJoin": "semistream.joins",
    "IndexNestedLoopJoin": "semistream.joins",
    "JoinStats": "semistream.joins",
    "JoinedStream": "semistream.joins",
    "MemoryBudget": "semistream.budget",
    "MeshFactors": "semistream.joins",
    "MeshJoin": "semistream.joins",
    "ParquetRelation": "semistream.relation",
    "Relation": "semistream.relation",
    "ResidentJoin": "semistream.joins",
    "SemiStreamJoin": "semistream.joins",
    "SemiStreamingIndexJoin": "semistream.joins",
    "SweepJoin": "semistream.joins",
    "SemistreamError": "semistream.errors",
    "calibrate": "semistream.joins.calibrate",
    "explain": "semistream.joins",
    "join": "semistream.joins",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # asked for once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
