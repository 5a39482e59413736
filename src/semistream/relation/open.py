"""Open a relation of either kind: clustered pages or plain Parquet."""

from __future__ import annotations

from pathlib import Path

from semistream.errors import InvalidArgument
from semistream.relation.format.manifest import CURRENT
from semistream.relation.parquet.data_files import holds_parquet
from semistream.relation.parquet.parquet_relation import ParquetRelation
from semistream.relation.relation import Relation
from semistream.storage.local_paths import local_path

AnyRelation = Relation | ParquetRelation


def no_relation(given: object, builder: str) -> InvalidArgument:
    """Return the error for an object given as R; ``builder`` is the call that makes a relation of rows."""
    return InvalidArgument(
        f"relation is a {type(given).__name__}; give a Relation or the path of one. Rows become a relation by "
        f"{builder}."
    )


def open_relation(path: str | Path) -> AnyRelation:
    """Open the relation at ``path``, or the Parquet data there if it holds no relation."""
    if not isinstance(path, str | Path):
        raise no_relation(path, "Relation.build(data, path, key=...)")
    where = local_path(path)
    if not (where / CURRENT).exists() and holds_parquet(where):
        return ParquetRelation.open(where)
    return Relation.open(where)
