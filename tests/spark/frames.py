"""Small tables of every key type, and Spark's own join of them as the oracle."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as sf

_SPARK_HOW = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}
_START = dt.datetime(2024, 2, 28, 23, 0, tzinfo=dt.UTC)
R_KEYS, R_ROWS, S_ROWS = 300, 400, 500
KEYS: dict[str, list[tuple[str, pa.DataType, Any]]] = {
    "int": [("k", pa.int32(), lambda i: i - 100)],
    "long": [("k", pa.int64(), lambda i: (i - 100) * 10**15)],
    "string": [("k", pa.string(), lambda i: "é" * (i % 3) + str(i))],
    "composite": [("k", pa.string(), lambda i: f"c{i % 20}"), ("n", pa.int16(), lambda i: i // 20)],
    "decimal": [("k", pa.decimal128(12, 3), lambda i: Decimal(i - 100) / 8)],
    "long decimal": [("k", pa.decimal128(25, 3), lambda i: Decimal(i - 100) * 10**18)],
    "timestamp": [("k", pa.timestamp("us", "UTC"), lambda i: _START + dt.timedelta(microseconds=i * 7_000_001))],
    "local time": [("k", pa.timestamp("us"), lambda i: (_START + dt.timedelta(minutes=7 * i)).replace(tzinfo=None))],
    "date": [("k", pa.date32(), lambda i: dt.date(1970, 1, 1) + dt.timedelta(i - 150))],
    "double": [("k", pa.float64(), lambda i: float("nan") if i == 3 else (i - 100) / 3)],
    "binary": [("k", pa.binary(), lambda i: bytes([i % 7]) * (i % 40) + i.to_bytes(2, "big"))],
}


def key_names(kind: str) -> list[str]:
    return [name for name, _, _ in KEYS[kind]]


def table(kind: str, rows: int, keys: int, *, seed: int, payload: str) -> pa.Table:
    """Rows with keys that repeat, a few of them null, and a payload that tells them apart."""
    rng = random.Random(seed)
    chosen = [rng.randrange(keys) for _ in range(rows)]
    columns: dict[str, pa.Array] = {
        name: pa.array([None if rng.random() < 0.02 else value(i) for i in chosen], type_)
        for name, type_, value in KEYS[kind]
    }
    columns[payload] = pa.array(range(rows), pa.int64())
    columns[payload + "_text"] = pa.array([None if i % 9 == 0 else f"{payload} {i}" for i in range(rows)])
    return pa.table(columns)


def r_table(kind: str) -> pa.Table:
    return table(kind, R_ROWS, R_KEYS, seed=1, payload="r")


def s_table(kind: str) -> pa.Table:
    return table(kind, S_ROWS, R_KEYS + 100, seed=2, payload="s")


def frame(spark: Any, table: pa.Table) -> Any:
    """A table as a DataFrame; Spark would take timestamps without a zone for instants."""
    naive = {f.name for f in table.schema if pa.types.is_timestamp(f.type) and f.type.tz is None}
    columns = [sf.col(name).cast("timestamp_ntz") if name in naive else sf.col(name) for name in table.column_names]
    return spark.createDataFrame(table).select(*columns)


def spark_join(spark: Any, stream: pa.Table, relation: pa.Table, on: list[str], how: str) -> list[str]:
    """Return Spark's result of the same join, as `multiset`."""
    joined = frame(spark, stream).join(frame(spark, relation), on=on, how=_SPARK_HOW[how])
    columns = [*stream.column_names, *(name for name in relation.column_names if name not in on)]
    return multiset(joined.select(*(columns if how in ("inner", "left") else stream.column_names)))


def multiset(df: Any) -> list[str]:
    """The rows of a DataFrame in an order of their own, comparable (a NaN is not, as a float)."""
    return sorted(repr(tuple(row)) for row in df.collect())
