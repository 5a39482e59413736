"""semistream: join a fast stream with a relation far larger than memory, inside one byte budget."""

from semistream.budget import MemoryBudget
from semistream.errors import SemistreamError
from semistream.joins import JoinedStream, JoinStats, MeshJoin, SemiStreamJoin, join
from semistream.relation import Relation

__all__ = [
    "JoinStats",
    "JoinedStream",
    "MemoryBudget",
    "MeshJoin",
    "Relation",
    "SemiStreamJoin",
    "SemistreamError",
    "join",
]
__version__ = "0.1.0"
