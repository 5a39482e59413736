"""S with R: the operators and the function that drives them."""

from semistream.joins.base import SemiStreamJoin
from semistream.joins.hybrid import HybridJoin
from semistream.joins.join import JoinedStream, join
from semistream.joins.mesh import MeshJoin
from semistream.joins.nested_loop import IndexNestedLoopJoin
from semistream.joins.stats import JoinStats

__all__ = ["HybridJoin", "IndexNestedLoopJoin", "JoinStats", "JoinedStream", "MeshJoin", "SemiStreamJoin", "join"]
