"""Columns that a caller names: one name, several, or none for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidArgument, require_names


def named_columns(schema: pa.Schema, columns: str | Sequence[str] | None, relation: Path) -> list[str]:
    """Return ``columns`` as a list, all columns for None; raise `ColumnNotFound` for an unknown name."""
    if isinstance(columns, Mapping):
        raise InvalidArgument(
            "columns is a mapping, but rows of a relation keep the names of its columns; give names, and rename the "
            "columns of the result."
        )
    names = list(schema.names) if columns is None else require_names("columns", columns)
    for name in names:
        if name not in schema.names:
            raise ColumnNotFound(name, schema.names, where=f"relation {relation}")
    return names
