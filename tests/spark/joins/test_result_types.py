"""Columns of R in every Arrow type come out of join() in the types that Spark has, without loss."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import InvalidArgument
from semistream.relation import Relation
from semistream.spark import join
from tests.arrow_types import TYPES

pytestmark = pytest.mark.spark

_NOON = dt.datetime(2024, 3, 10, 12, 0, 0, 123_000)
_SHARP = dt.datetime(2024, 3, 10, 12)
VALUES = {
    "uint8": (pa.array([255], pa.uint8()), "smallint", 255),
    "uint16": (pa.array([2**16 - 1], pa.uint16()), "int", 2**16 - 1),
    "uint32": (pa.array([2**32 - 1], pa.uint32()), "bigint", 2**32 - 1),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)", Decimal(2**64 - 1)),
    "float16": (pa.array([np.float16(0.5)], pa.float16()), "float", 0.5),
    "date64": (pa.array([_NOON.date()], pa.date64()), "date", _NOON.date()),
    "ts_s": (
        pa.array([_NOON.replace(microsecond=0)], pa.timestamp("s")),
        "timestamp_ntz",
        _NOON.replace(microsecond=0),
    ),
    "ts_ms": (pa.array([_NOON], pa.timestamp("ms")), "timestamp_ntz", _NOON),
    "ts_ns": (pa.array([_NOON], pa.timestamp("ns")), "timestamp_ntz", _NOON),
    "seconds": (pa.array([dt.timedelta(1, 5)], pa.duration("s")), "interval day to second", dt.timedelta(1, 5)),
    "decimal32": (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), "decimal(5,2)", Decimal("1.50")),
    "thousands": (pa.array([Decimal(7000)], pa.decimal128(5, -3)), "decimal(8,0)", Decimal(7000)),
    "decimal256": (pa.array([Decimal("-2.5")], pa.decimal256(30, 4)), "decimal(30,4)", Decimal("-2.5")),
    "fixed": (pa.array([b"abc"], pa.binary(3)), "binary", b"abc"),
    "large": (pa.array(["é"], pa.large_string()), "string", "é"),
    "null": (pa.nulls(1), "void", None),
    "list": (pa.array([[1, None]], pa.list_(pa.uint8())), "array<smallint>", [1, None]),
    "pair": (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), "array<int>", [1, 2]),
    "struct": (
        pa.array([{"a": 1, "b": [_NOON]}], pa.struct([("a", pa.uint16()), ("b", pa.large_list(pa.timestamp("ms")))])),
        "struct<a:int,b:array<timestamp_ntz>>",
        (1, [_NOON]),
    ),
    "map": (pa.array([[("x", 1)]], pa.map_(pa.string(), pa.uint32())), "map<string,bigint>", {"x": 1}),
}


def test_every_type_comes_out_in_the_nearest_spark_type(spark, tmp_path):
    table = pa.table({"k": pa.array([1])} | {name: column for name, (column, _, _) in VALUES.items()})
    relation = Relation.build(table, tmp_path / "r", key="k")
    joined = join(spark.range(1, 3).withColumnRenamed("id", "k"), relation, on="k", how="left", memory="2MB")
    assert dict(joined.dtypes[1:]) == {name: spark_type for name, (_, spark_type, _) in VALUES.items()}
    matched, alone = sorted(joined.collect())
    assert {name: _plain(matched[name]) for name in VALUES} == {name: value for name, (_, _, value) in VALUES.items()}
    assert not any(alone[name] for name in VALUES)


def _plain(value):
    """Rows are tuples, but do not say so when they are compared."""
    return bytes(value) if isinstance(value, bytearray) else tuple(value) if hasattr(value, "asDict") else value


def test_a_value_that_spark_would_truncate_is_refused_by_column(spark, tmp_path):
    precise = pa.array([1_000_000_001], pa.int64()).view(pa.timestamp("ns"))
    relation = Relation.build(pa.table({"k": pa.array([0]), "at": precise}), tmp_path / "r", key="k")
    joined = join(spark.range(1), relation, on={"id": "k"}, memory="1MB")
    with pytest.raises(Exception, match=r"column 'at' is timestamp\[ns\].*Build the relation with the column cast"):
        joined.collect()


def test_encoded_and_extension_types_of_r_come_out_as_their_values(spark, tmp_path):
    labels = ["string_view", "dictionary of string_view", "run-end encoded int64", "list of dictionaries", "json"]
    table = pa.table({"k": np.arange(3)} | {label: TYPES[label].slice(0, 3) for label in labels})
    relation = Relation.build(table, tmp_path / "r", key="k")
    found = sorted(join(spark.range(3), relation, on={"id": "k"}, memory="2MB").collect())
    assert [tuple(row)[1:] for row in found] == list(zip(*(table[label].to_pylist() for label in labels), strict=True))


def test_columns_of_the_stream_come_out_in_their_spark_types(spark, tmp_path):
    values = {
        "tiny": "CAST(id AS tinyint)", "flag": "id = 1", "text": "CAST(id AS string)", "bytes": "CAST('x' AS binary)",
        "amount": "CAST(id AS decimal(30,2))", "day": "DATE'2024-02-29'", "at": "TIMESTAMP'2024-02-29 01:02:03'",
        "local": "TIMESTAMP_NTZ'2024-02-29 01:02:03'", "span": "INTERVAL '1 2:03:04' DAY TO SECOND",
        "words": "array('a', null)", "pairs": "map('a', id)", "deep": "named_struct('x', id, 'y', array(map(1, 'z')))",
        "nothing": "null", "half": "CAST(id / 2 AS float)",
    }  # fmt: skip
    columns = [f"IF(id = 2, null, {value}) AS {name}" for name, value in values.items()]
    stream = spark.range(3).selectExpr("id", *columns)
    relation = Relation.build(pa.table({"k": [0, 1, 2], "w": TYPES["uuid"]}), tmp_path / "r", key="k")
    joined = join(stream, relation, on={"id": "k"}, memory="2MB")
    assert joined.dtypes == [*stream.dtypes, ("w", "binary")]
    assert sorted(row[:-1] for row in map(tuple, joined.collect())) == sorted(map(tuple, stream.collect()))


def test_a_union_is_refused_by_column(spark, tmp_path):
    relation = Relation.build(pa.table({"k": np.arange(4), "u": TYPES["sparse_union"]}), tmp_path / "r", key="k")
    with pytest.raises(InvalidArgument, match=r"column 'u' of the relation has type sparse_union.*columns="):
        join(spark.range(3), relation, on={"id": "k"}, memory="1MB")
    assert join(spark.range(3), relation, on={"id": "k"}, memory="1MB", columns=[]).count() == 3
