"""Spark's own types as keys and as payload: the rows and the types are those of Spark's own join."""

from functools import reduce

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from semistream.relation import Relation
from semistream.spark import join

pytestmark = pytest.mark.spark

_NAN = "IF(id = 5, double('NaN'), id / 2)"
_CLOCK = "TIMESTAMP_NTZ'1970-01-01' + make_dt_interval(0, 0, 0, {})"
# The keys of S and of R, made of ids from 0 to 7. Some keys of one side are missing in the other.
KEYS = {
    "int and decimal": ("CAST(id AS int)", "CAST(id / 2 AS decimal(12, 1))"),
    "long and double": ("id", _NAN),
    "NaN and zeros": ("IF(id = 1, double('NaN'), IF(id = 2, -0.0D, id / 4))", _NAN),
    "decimals of two scales": ("CAST(id AS decimal(30, 3))", "CAST(id * 1.5 AS decimal(30, 1))"),
    "binary": ("CAST(concat(id, '') AS binary)", "CAST(concat(id * 2, '') AS binary)"),
    "timestamp": ("timestamp_seconds(id)", "timestamp_seconds(id * 2)"),
    "local timestamp": (_CLOCK.format("id"), _CLOCK.format("id * 2")),
    "interval": ("make_dt_interval(CAST(id AS int))", "make_dt_interval(CAST(id * 2 AS int))"),
    "Boolean": ("id % 2 = 0", "id > 3"),
}


def test_keys_and_payload_of_every_type_give_the_rows_of_sparks_own_join(spark, tmp_path):
    ids, frames = spark.range(0, 8, 1, 1), []
    for name, (left, right) in KEYS.items():
        stream = ids.selectExpr(f"IF(id = 7, null, {left}) AS s", "id AS n")
        table = ids.selectExpr(f"IF(id = 6, null, {right}) AS k", "id AS m")
        relation = Relation.build(table.toArrow(), tmp_path / name, key="k")
        ours = join(stream, relation, on={"s": "k"}, how="left", columns=["k", "m"], memory="1MB")
        theirs = stream.join(table, stream["s"] == table["k"], "left")
        assert ours.dtypes == theirs.dtypes, name
        frames += [ours.selectExpr(f"'{name}' AS name", "1 AS sign", "n", "m")]
        frames += [theirs.selectExpr(f"'{name}' AS name", "-1 AS sign", "n", "m")]
    rows = reduce(DataFrame.union, frames)
    counted = rows.groupBy("name", "n", "m").agg(sf.sum("sign").alias("difference")).collect()
    assert [row for row in counted if row.difference] == []
    assert {row.name for row in counted if row.m is not None} == set(KEYS)
