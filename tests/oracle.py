"""The batch join by DuckDB, the oracle for the results of every operator."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa


def batch_join(
    stream: pa.Table, relation: pa.Table, on: dict[str, str], how: str, payload: list[str], suffix: str = "_right"
) -> pa.Table:
    """``stream`` joined with ``relation`` by DuckDB; ``payload`` are the relation's columns that come out."""
    condition = " AND ".join(f's."{left}" = r."{right}"' for left, right in on.items())
    return sql_join(stream, relation, condition, how, payload, suffix)


def sql_join(
    stream: pa.Table, relation: pa.Table, condition: str, how: str, payload: list[str], suffix: str = "_right"
) -> pa.Table:
    """The same for any condition that DuckDB can read.

    Semi and anti joins are made of an inner one: DuckDB 2.0.0 gives strings of other rows, or of no row, out of a semi
    join by several inequalities.
    """
    with duckdb.connect() as connection:
        connection.register("s", stream.append_column("row number", pa.array(range(stream.num_rows), pa.int64())))
        connection.register("r", relation)
        if how in ("semi", "anti"):
            numbers = connection.sql(f'SELECT DISTINCT s."row number" FROM s JOIN r ON {condition}').to_arrow_table()
            matched = set(numbers.column(0).to_pylist())
            return stream.filter(
                pa.array([(i in matched) == (how == "semi") for i in range(stream.num_rows)], pa.bool_())
            )
        columns = [f's."{name}"' for name in stream.column_names]
        columns += [f'r."{n}" AS "{n + suffix if n in stream.column_names else n}"' for n in payload]
        return connection.sql(f"SELECT {', '.join(columns)} FROM s {how} JOIN r ON {condition}").to_arrow_table()


def multiset(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows of a table, counted; values compare as Python's, with NaN equal to itself."""
    columns = [[_hashable(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter()


def _hashable(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    return value
