"""join() on batch DataFrames against Spark's own join."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Row
from pyspark.sql import functions as sf

from semistream.relation import Relation
from semistream.spark import explain, join
from tests.oracle import sql_join
from tests.spark.frames import KEYS, frame, key_names, multiset, r_table, s_table, spark_join

pytestmark = pytest.mark.spark
MEMORY = "400kB"


def build(tmp_path, table, key):
    return Relation.build(table, tmp_path / "r", key=key, page_bytes=1024)


@pytest.mark.parametrize("route", ["none", "range"])
@pytest.mark.parametrize("kind", KEYS)
def test_left_join_on_every_key_type_equals_sparks(spark, tmp_path, kind, route):
    keys = key_names(kind)
    relation = build(tmp_path, r_table(kind), keys)
    stream = frame(spark, s_table(kind))
    joined = join(stream, relation, on=keys, how="left", memory=MEMORY, route=route)
    assert multiset(joined) == spark_join(spark, s_table(kind), r_table(kind), keys, "left")


@pytest.mark.parametrize("route", ["none", "range"])
@pytest.mark.parametrize("how", ["inner", "semi", "anti"])
def test_every_kind_of_join_equals_sparks(spark, tmp_path, how, route):
    keys = key_names("composite")
    relation = build(tmp_path, r_table("composite"), keys)
    stream = frame(spark, s_table("composite")).repartition(3)
    joined = join(stream, relation.path, on=keys, how=how, memory=MEMORY, route=route)
    assert multiset(joined) == spark_join(spark, s_table("composite"), r_table("composite"), keys, how)


@pytest.mark.parametrize("route", ["none", "range"])
def test_partitions_without_rows_give_none(spark, tmp_path, route):
    relation = build(tmp_path, r_table("int"), "k")
    stream = frame(spark, s_table("int"))
    sparse = stream.limit(1).repartition(4)
    assert join(sparse, relation, on="k", how="left", memory=MEMORY, route=route).count() >= 1
    assert join(stream.limit(0), relation, on="k", how="left", memory=MEMORY, route=route).count() == 0


def test_a_relation_without_rows_matches_nothing(spark, tmp_path):
    relation = build(tmp_path, r_table("int").slice(0, 0), "k")
    stream = frame(spark, s_table("int"))
    for route in ("none", "range"):
        assert join(stream, relation, on="k", how="anti", memory=MEMORY, route=route).count() == stream.count()


def test_routed_results_stay_right_when_spark_numbers_the_tasks_anew(spark, tmp_path):
    relation = build(tmp_path, r_table("string"), "k")
    stream = frame(spark, s_table("string"))
    routed = join(stream, relation, on="k", memory=MEMORY, route="range")
    expected = spark_join(spark, s_table("string"), r_table("string"), ["k"], "inner")
    assert multiset(routed.coalesce(1)) == expected
    assert multiset(routed.union(routed)) == sorted(expected * 2)


def test_columns_of_different_names_and_types_that_compare(spark, tmp_path):
    relation = build(tmp_path, r_table("int"), "k")
    stream = frame(spark, s_table("int")).select(
        sf.col("k").cast("bigint").alias("a.b`c"), (sf.col("s") + 2**40).alias("r")
    )
    stream = stream.union(spark.createDataFrame([(2**40, 1)], stream.schema))
    for route in ("none", "range"):
        joined = join(stream, relation, on={"a.b`c": "k"}, columns=["r"], memory=MEMORY, route=route)
        assert joined.columns == ["a.b`c", "r", "r_right"]
        assert joined.count() == len(spark_join(spark, s_table("int"), r_table("int"), ["k"], "inner"))


def test_stream_types_that_arrow_only_knows_wider_come_back_as_they_were(spark, tmp_path):
    relation = build(tmp_path, pa.table({"k": pa.array([1]), "v": ["x"]}), "k")
    stream = spark.sql(
        "SELECT 1L AS k, TIME'12:34:56.123' AS t, INTERVAL '5' HOUR AS h, TIMESTAMP_NTZ'2024-03-10 02:30:00' AS n,"
        " map('a', array(1)) AS m, named_struct('x', CAST(NULL AS DECIMAL(30, 5))) AS s, CAST('ab' AS BINARY) AS b"
    )
    joined = join(stream, relation, on="k", memory=MEMORY)
    assert joined.schema[: len(stream.columns)] == stream.schema
    assert [tuple(row)[:-1] for row in joined.collect()] == [tuple(row) for row in stream.collect()]


def test_other_conditions_than_equality_equal_duckdbs(spark, tmp_path):
    r, s = r_table("int"), s_table("int")
    relation = build(tmp_path, r, "k")
    stream = frame(spark, s).repartition(2)
    cases = [
        ({"where": "s.k > r.k"}, "s.k > r.k"),
        (
            {"on": {"s": "r"}, "where": ["abs(s.k - r.k) <= 2", pc.field("r") > 3]},
            "s.s = r.r AND abs(s.k - r.k) <= 2 AND r.r > 3",
        ),
        ({"on": {"s": "r"}}, "s.s = r.r"),
    ]
    for arguments, sql in cases:
        joined = join(stream, relation, how="left", memory=MEMORY, columns=["k", "r"], **arguments)
        expected = sql_join(s, r, sql, "left", ["k", "r"])
        assert sorted(map(repr, joined.collect())) == sorted(map(repr, (Row(**row) for row in expected.to_pylist())))


def test_a_relation_opened_before_an_update_is_joined_in_its_current_version(spark, tmp_path):
    relation = build(tmp_path, pa.table({"k": [1, 2], "v": ["old", "old"]}), "k")
    relation.update(pa.table({"k": [2, 3], "v": ["new", "new"]}))
    joined = join(spark.range(4).withColumnRenamed("id", "k"), relation, on="k", memory=MEMORY)
    assert multiset(joined) == ["(1, 'old')", "(2, 'new')", "(3, 'new')"]


def test_columns_are_renamed_in_workers_too(spark, tmp_path):
    relation = build(tmp_path, pa.table({"k": [1, 2], "v": [10, 20], "w": [3, 4]}), "k")
    stream = spark.createDataFrame([(1,), (3,)], "k long")
    for route in ("none", "range"):
        joined = join(stream, relation, on="k", how="left", columns={"w": "weight", "v": "value"}, route=route)
        assert joined.columns == ["k", "weight", "value"]
        assert sorted(map(tuple, joined.collect())) == [(1, 3, 10), (3, None, None)]
    assert join(stream, relation, on="k", columns="v").columns == ["k", "v"]
    assert explain(stream, relation, on="k", columns={"w": "weight"}).rate > 0


def test_how_takes_sparks_names(spark, tmp_path):
    keys = key_names("int")
    relation = build(tmp_path, r_table("int"), keys)
    stream = frame(spark, s_table("int"))
    for how in ("leftouter", "left_outer", "leftsemi", "left_semi", "semi", "leftanti", "left_anti", "anti"):
        joined = join(stream, relation, on=keys, how=how, memory=MEMORY)
        kind = {"outer": "left"}.get(how.removeprefix("left").strip("_"), how.removeprefix("left").strip("_"))
        assert multiset(joined) == spark_join(spark, s_table("int"), r_table("int"), keys, kind)
