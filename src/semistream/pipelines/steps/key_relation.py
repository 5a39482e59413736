"""Relations of keys that a pipeline adds to: create them empty, and find new keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import PipelineError, RelationError
from semistream.pipelines.ledger.entries import WaitingFile
from semistream.relation import Relation, Transaction


def open_key_relation(path: Path, key: pa.Schema, value: pa.Field) -> Relation:
    """Open a relation from key columns to one value; create an empty one if it is missing.

    An existing one may have other names for its key columns, since pipelines may share it: keys go by position.
    """
    schema = key.append(value)
    if not (path / "CURRENT").exists():
        try:
            return Relation.build(schema.empty_table(), path, key=key.names)
        except RelationError:
            if not (path / "CURRENT").exists():  # another pipeline was faster
                raise
    relation = Relation.open(path)
    found = relation.schema
    if (*relation.key, value.name) != tuple(found.names) or found.types != schema.types:
        raise PipelineError(
            f"{path} has the columns ({_described(found)}) and the key ({', '.join(relation.key)}); the step needs "
            f"({_described(schema)}) with all but the last as key. Give it another relation, or an unused path, where "
            "one is created."
        )
    return relation


def version_with(current: Relation, transaction: Transaction) -> Relation:
    """Return the version that a transaction made. If it is gone, return the current one: keys are never removed."""
    made = current.made_by(transaction)
    return Relation.open(current.path, made) if made in current.versions() else current


def stalled_keys(folder: Path, files: Sequence[WaitingFile], key: Sequence[str]) -> pa.Table:
    """Return the keys of stalled rows, one for each row, in the order of the files."""
    return pa.concat_tables([pq.read_table(folder / file.path, columns=list(key)) for file in files])


def unknown_keys(relation: Relation, keys: pa.Table) -> pa.Table:
    """Return those of the distinct ``keys`` that the relation lacks."""
    found = relation.lookup(keys.cast(key_schema(relation)), columns=list(relation.key))
    return keys.join(found.cast(keys.schema), keys=keys.column_names, join_type="left anti") if found.num_rows else keys


def key_schema(relation: Relation) -> pa.Schema:
    """Return the schema of the relation's key columns."""
    return pa.schema([relation.schema.field(name) for name in relation.key])


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
