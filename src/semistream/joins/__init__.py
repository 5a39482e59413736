"""S with R: the operators and the function that drives them."""

from semistream.joins.base import SemiStreamJoin
from semistream.joins.join import JoinedStream, join
from semistream.joins.mesh import MeshJoin
from semistream.joins.stats import JoinStats

__all__ = ["JoinStats", "JoinedStream", "MeshJoin", "SemiStreamJoin", "join"]
