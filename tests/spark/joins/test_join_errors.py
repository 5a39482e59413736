"""Errors in a join are raised by join() itself, on the driver, as the library's errors."""

import decimal
import socket

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import semistream
from semistream.errors import BudgetError, ColumnNotFound, InvalidArgument, KeyTypeError, NotARelation
from semistream.relation import BufferedDisk, Relation
from semistream.spark import build_relation, explain, join, repair_window_join

pytestmark = pytest.mark.spark


@pytest.fixture
def relation(tmp_path):
    return Relation.build(pa.table({"k": range(1000), "v": ["x"] * 1000}), tmp_path / "r", key="k", page_bytes=1024)


@pytest.fixture
def stream(spark):
    return spark.range(3).withColumnRenamed("id", "k")


def test_a_missing_column_is_named_with_those_there_are(stream, relation):
    with pytest.raises(ColumnNotFound, match=r"stream has no column 'key'.*it has 'k'"):
        join(stream, relation, on={"key": "k"})
    with pytest.raises(ColumnNotFound, match="no column 'w'"):
        join(stream, relation, on="k", columns=["w"])


def test_types_that_do_not_compare_are_refused(stream, relation):
    with pytest.raises(KeyTypeError, match="stream key 'k' is string but relation key 'k' is int64"):
        join(stream.selectExpr("CAST(k AS STRING) AS k"), relation, on="k", route="range")


def test_a_budget_of_a_kilobyte_is_refused_with_the_least_that_works(stream, relation):
    with pytest.raises(BudgetError, match=r"1000 bytes is too small.*it needs at least"):
        join(stream, relation, on="k", memory="1kB")


def test_a_path_that_is_no_relation_is_refused(stream, tmp_path):
    with pytest.raises(NotARelation, match=r"Relation\.build"):
        join(stream, tmp_path / "nothing", on="k")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operator": "magic"}, "operator is 'magic'"),
        ({"route": "hash"}, "route is 'hash'; give one of 'none', 'range'"),
        ({"how": "outer"}, "how is 'outer'"),
        ({"disk": "tape"}, "disk is 'tape'; give 'auto', 'direct', 'buffered'"),
        ({"disk": BufferedDisk()}, "option 'disk' is a BufferedDisk"),
        ({"operator": "mesh", "pages": 3}, "'mesh' has no option 'pages'; it has .*pages_per_step"),
        ({"operator": "mesh", "pages_per_step": [3]}, "option 'pages_per_step' is a list"),
    ],
)
def test_an_argument_that_cannot_work_is_refused(stream, relation, arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        join(stream, relation, on="k", **arguments)


def test_only_an_equality_of_the_key_is_routed(stream, relation):
    for where in ("s.k > r.k", "abs(s.k - r.k) <= 3"):
        with pytest.raises(InvalidArgument, match=r"does not equate R's key \(k\). Use route='none'"):
            join(stream, relation, where=where, memory="1MB", route="range")
    with pytest.raises(InvalidArgument, match="where cannot be parsed at character 5"):
        join(stream, relation, where="s.k ~ r.k", memory="1MB")
    routed = join(stream, relation, on="k", where=pc.field("k") > 1, memory="1MB", route="range")
    assert [row["k"] for row in routed.collect()] == [2]


def test_what_is_not_a_spark_dataframe_is_refused(relation):
    with pytest.raises(InvalidArgument, match="df is a pyarrow"):
        join(pa.table({"k": [1]}), relation, on="k")


def test_columns_of_one_name_are_refused(stream, relation):
    with pytest.raises(InvalidArgument, match="several columns called 'k'"):
        join(stream.select("k", "k"), relation, on="k")


def test_a_column_that_spark_has_no_type_for_is_refused_by_name(stream, tmp_path):
    wide = pa.array([decimal.Decimal(1)], pa.decimal256(60, 0))
    relation = Relation.build(pa.table({"k": [1], "w": wide, "v": [2]}), tmp_path / "r", key="k")
    with pytest.raises(InvalidArgument, match=r"column 'w' of the relation has type decimal256.*columns=\["):
        join(stream, relation, on="k", memory="1MB")
    assert join(stream, relation, on="k", memory="1MB", columns=["v"]).count() == 1


def test_a_key_whose_codes_spark_cannot_compute_can_be_joined_but_not_routed(spark, tmp_path):
    wide = pa.array([decimal.Decimal(7)], pa.decimal256(60, 0))
    relation = Relation.build(pa.table({"k": wide, "v": [2]}), tmp_path / "r", key="k")
    stream = spark.sql("SELECT CAST(7 AS DECIMAL(20, 0)) AS k")
    assert join(stream, relation, on="k", memory="1MB").collect()[0]["v"] == 2
    with pytest.raises(KeyTypeError, match=r"'k' is decimal256.*route=.none."):
        join(stream, relation, on="k", memory="1MB", route="range")


def test_a_path_with_a_scheme_is_refused(spark, stream, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: build_relation(stream, "s3a://bucket/r", key="k"),
        lambda: join(stream, "s3a://bucket/r", on="k"),
        lambda: explain(stream, "s3a://bucket/r", on="k"),
        lambda: repair_window_join("s3a://bucket/r").__next__(),
    ):
        with pytest.raises(InvalidArgument, match="has the scheme 's3a'"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_column_is_refused_where_a_name_is_wanted(spark, stream, relation, tmp_path):
    column = stream["k"]
    calls = {
        "on": [lambda on: join(stream, relation, on=on), lambda on: explain(stream, relation, on=on)],
        "columns": [lambda columns: join(stream, relation, on="k", columns=columns)],
        "key": [lambda key: build_relation(stream, tmp_path / "new", key=key)],
        "where": [lambda where: join(stream, relation, where=where)],
    }
    for name, takers in calls.items():
        for call in takers:
            for given in (column, [column], column == 1, stream):
                with pytest.raises(
                    InvalidArgument, match=rf"{name} is (or contains an object of type|a|a list with a) "
                ):
                    call(given)
    with pytest.raises(InvalidArgument, match="on is a dict_values with a Column"):
        join(stream, relation, on={"k": column})


def test_rows_are_refused_where_a_relation_is_wanted(stream):
    for call in (join, explain):
        with pytest.raises(InvalidArgument, match=r"relation is a DataFrame.*spark\.build_relation\(df, path, key="):
            call(stream, stream, on="k")
        with pytest.raises(InvalidArgument, match="relation is a Column"):
            call(stream, stream["k"], on="k")
    with pytest.raises(InvalidArgument, match=r"relation is a Table.*Relation\.build\(data, path, key="):
        semistream.join(pa.table({"k": [1]}), pa.table({"k": [1]}), on="k")
    with pytest.raises(InvalidArgument, match=r"a path is a Column"):
        build_relation(stream, stream["k"], key="k")


def test_a_worker_that_cannot_see_the_relation_names_its_host(stream, relation):
    joined = join(stream, relation, on="k", memory="1MB")
    relation.path.rename(relation.path.with_name("moved"))
    with pytest.raises(Exception, match=rf"the worker on {socket.gethostname()} cannot open .*which the driver could"):
        joined.collect()
