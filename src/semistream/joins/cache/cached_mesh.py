"""CachedMeshJoin: CMESHJOIN."""

from __future__ import annotations

from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.mesh.operator import MeshJoin


class CachedMeshJoin(FrontStage):
    """CMESHJOIN (FRONT 3): the front stage before MESHJOIN."""

    name = "cmesh"
    wraps = MeshJoin
