"""Rules of Spark's SQL that a join must keep, or refuse: letter case of names, collations, padded CHARs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField

from semistream.errors import InvalidArgument, KeyTypeError, require_names
from semistream.joins.condition.condition import JoinOn, compared_columns, key_pairs
from semistream.joins.condition.spec import Columns
from semistream.joins.condition.where import Where

_SQL_TYPE = "__CHAR_VARCHAR_TYPE_STRING"  # key of a field's metadata
_ARROW_METADATA = b"SPARK::metadata::json"


def ignores_case(df: DataFrame) -> bool:
    """Return True if Spark takes names that differ only in letter case for one, as it does by default."""
    return str(df.sparkSession.conf.get("spark.sql.caseSensitive")).lower() != "true"


def names_of(names: Iterable[str], available: Iterable[str]) -> list[str]:
    """Return names as the columns have them, whatever their letter case; names that no column has stay as they are.

    >>> names_of(["ID", "Day", "x"], ["id", "day", "DAY"])
    ['id', 'Day', 'x']
    """
    own = list(available)
    found = []
    for name in names:
        alike = [column for column in own if column.lower() == name.lower()]
        found.append(alike[0] if name not in own and len(alike) == 1 else name)
    return found


def on_as_named(df: DataFrame, relation: pa.Schema, on: JoinOn | None) -> JoinOn | None:
    """Return ``on`` with the names that the two sides have."""
    if on is None or not ignores_case(df):
        return on
    pairs = key_pairs(on)
    named = dict(zip(names_of(pairs, df.columns), names_of(pairs.values(), relation.names), strict=True))
    if len(named) < len(pairs):
        raise InvalidArgument(f"on names a column of the stream twice: {', '.join(map(repr, pairs))}. Name it once.")
    return named


def columns_as_named(df: DataFrame, relation: pa.Schema, columns: Columns | None) -> Columns | None:
    """Return ``columns`` with the names that R has."""
    if columns is None or not ignores_case(df):
        return columns
    if isinstance(columns, Mapping):
        return dict(zip(names_of(columns, relation.names), columns.values(), strict=True))
    return names_of(require_names("columns", columns), relation.names)


def require_distinct_names(df: DataFrame, result: Iterable[str], remedy: str) -> None:
    """Raise `InvalidArgument` if Spark would take two columns of a result for one."""
    if not ignores_case(df):
        return
    seen: dict[str, str] = {}
    for name in result:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidArgument(
                f"the result would have the columns {other!r} and {name!r}, which Spark takes for one "
                f"(spark.sql.caseSensitive is false). {remedy}"
            )


def require_sql_equality(df: DataFrame, relation: pa.Schema, on: JoinOn | None, where: Where | None) -> None:
    """Raise `KeyTypeError` if Spark's SQL compares two columns of a condition otherwise than by their bytes."""
    fields = {field.name: field for field in df.schema}
    for name, other in compared_columns(on, where):
        if name in fields:
            require_binary_collation(fields[name])
            _require_same_padding(fields[name], relation, other)


def require_binary_collation(field: StructField) -> None:
    """Raise `KeyTypeError` for a key with a collation by which unlike bytes are equal."""
    type_ = field.dataType
    if isinstance(type_, StringType) and not type_.isUTF8BinaryCollation():
        raise KeyTypeError(
            f"column {field.name!r} has the collation {type_.collation}, by which Spark takes different strings for "
            f"equal, but keys are compared by their bytes. For that, cast it: {field.name} COLLATE UTF8_BINARY. "
            f"Otherwise use collation_key({field.name}) as the key on both sides."
        )


def _require_same_padding(field: StructField, relation: pa.Schema, other: str) -> None:
    """Raise `KeyTypeError` for two CHARs of unlike lengths, which Spark pads to the longer one to compare them."""
    if other not in relation.names:
        return
    about = json.loads((relation.field(other).metadata or {}).get(_ARROW_METADATA, b"{}"))
    lengths = [_char_length(metadata) for metadata in (field.metadata, about)]
    if None not in lengths and lengths[0] != lengths[1]:
        raise KeyTypeError(
            f"column {field.name!r} is char({lengths[0]}) and column {other!r} of R char({lengths[1]}); Spark pads the "
            f"shorter to compare them, but keys are compared by their bytes. Give the stream the length of R: "
            f"CAST(rpad(rtrim({field.name}), {lengths[1]}, ' ') AS string), if no value is longer."
        )


def _char_length(metadata: Mapping[str, object]) -> int | None:
    found = re.fullmatch(r"char\((\d+)\)", str(metadata.get(_SQL_TYPE, "")), re.IGNORECASE)
    return int(found[1]) if found else None
