"""Open a relation of either kind: clustered pages or plain Parquet."""

from __future__ import annotations

from pathlib import Path

from semistream.relation.format.manifest import CURRENT
from semistream.relation.parquet.data_files import holds_parquet
from semistream.relation.parquet.parquet_relation import ParquetRelation
from semistream.relation.relation import Relation
from semistream.storage.local_paths import local_path

AnyRelation = Relation | ParquetRelation


def open_relation(path: str | Path) -> AnyRelation:
    """Open the relation at ``path``, or the Parquet data there if it holds no relation."""
    where = local_path(path)
    if not (where / CURRENT).exists() and holds_parquet(where):
        return ParquetRelation.open(where)
    return Relation.open(where)
