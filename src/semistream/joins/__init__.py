"""S with R: the operators and the function that drives them."""

from semistream.joins.adaptive_mesh import AdaptiveMeshJoin
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cached_mesh import CachedMeshJoin
from semistream.joins.engine import EngineJoin
from semistream.joins.front_stage import FrontStage
from semistream.joins.hybrid import HybridJoin
from semistream.joins.index import SemiStreamingIndexJoin
from semistream.joins.join import JoinedStream, join
from semistream.joins.mesh import MeshJoin
from semistream.joins.nested_loop import IndexNestedLoopJoin
from semistream.joins.outlook import explain
from semistream.joins.resident import ResidentJoin
from semistream.joins.stats import JoinStats, TracePoint
from semistream.joins.sweep import SweepJoin
from semistream.tuning.mesh_costs import MeshFactors

__all__ = [
    "AdaptiveMeshJoin",
    "CachedMeshJoin",
    "EngineJoin",
    "FrontStage",
    "HybridJoin",
    "IndexNestedLoopJoin",
    "JoinStats",
    "JoinedStream",
    "MeshFactors",
    "MeshJoin",
    "ResidentJoin",
    "SemiStreamJoin",
    "SemiStreamingIndexJoin",
    "SweepJoin",
    "TracePoint",
    "explain",
    "join",
]
