"""join() on streaming DataFrames: the same rows as a batch join, and updates of R between micro-batches."""

from contextlib import redirect_stdout
from io import StringIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.relation import Relation
from semistream.spark import join, join_metrics
from tests.spark.frames import key_names, multiset, r_table, s_table, spark_join

pytestmark = pytest.mark.spark
MEMORY = "400kB"


class FileStream:
    """A folder of Parquet files as a stream: every file is a micro-batch."""

    def __init__(self, spark, folder, first):
        self._folder = folder
        self._files = 0
        folder.mkdir()
        self.write(first)
        schema = spark.read.parquet(str(folder)).schema
        self.df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))

    def write(self, table):
        hidden = self._folder / f"_{self._files}.parquet"
        pq.write_table(table, hidden)
        hidden.rename(self._folder / f"{self._files:03d}.parquet")  # Spark sees whole files only
        self._files += 1


@pytest.fixture
def run(spark, tmp_path):
    """Starts a query into a table in memory; stopped at the end of the test."""
    started = []

    def start(df, name):
        query = (
            df.writeStream.format("memory")
            .queryName(name)
            .outputMode("append")
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{name}"))
            .start()
        )
        started.append(query)
        return query

    yield start
    for query in started:
        query.stop()


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("route", ["none", "range"])
def test_a_stream_in_micro_batches_equals_the_batch_join(spark, tmp_path, run, route, how):
    keys = key_names("composite")
    relation = Relation.build(r_table("composite"), tmp_path / "r", key=keys, page_bytes=1024)
    rows = s_table("composite")
    stream = FileStream(spark, tmp_path / "s", rows.slice(0, 200))
    stream.write(rows.slice(200, 1))
    stream.write(rows.slice(201))
    name = f"joined_{how}_{route}"
    query = run(join(stream.df, relation, on=keys, how=how, memory=MEMORY, route=route), name)
    query.processAllAvailable()
    assert multiset(spark.table(name)) == spark_join(spark, rows, r_table("composite"), keys, how)


@pytest.mark.parametrize("route", ["none", "range"])
def test_the_next_micro_batch_sees_an_update(spark, tmp_path, run, route):
    before = pa.table({"k": range(200), "v": ["old"] * 200})
    relation = Relation.build(before, tmp_path / "r", key="k", page_bytes=1024)
    probes = pa.table({"k": pa.array([3, 150, 500, 900])})
    stream = FileStream(spark, tmp_path / "s", probes)
    name = f"updated_{route}"
    query = run(join(stream.df, relation, on="k", how="left", memory=MEMORY, route=route), name)
    query.processAllAvailable()
    relation.update(pa.table({"k": [150, 500], "v": ["new", "new"]}), deletes=[3])
    stream.write(probes)
    query.processAllAvailable()
    first = ["(150, 'old')", "(3, 'old')", "(500, None)", "(900, None)"]
    second = ["(150, 'new')", "(3, None)", "(500, 'new')", "(900, None)"]
    assert multiset(spark.table(name)) == sorted(first + second)


def test_a_relation_that_changed_its_columns_stops_the_query_with_a_clear_error(spark, tmp_path, run):
    relation = Relation.build(pa.table({"k": [1], "v": ["x"]}), tmp_path / "r", key="k")
    stream = FileStream(spark, tmp_path / "s", pa.table({"k": [1]}))
    query = run(join(stream.df, relation, on="k", memory="1MB"), "changed")
    query.processAllAvailable()
    Relation.build(pa.table({"k": [1], "v": [2.5]}), tmp_path / "r", key="k", overwrite=True)
    stream.write(pa.table({"k": [1]}))
    with pytest.raises(Exception, match="Stop the query and call join\\(\\) again"):
        query.processAllAvailable()


def test_a_join_inside_foreach_batch_equals_the_batch_join(spark, tmp_path, run):
    relation = Relation.build(r_table("int"), tmp_path / "r", key="k", page_bytes=1024)
    stream = FileStream(spark, tmp_path / "s", s_table("int").slice(0, 250))
    stream.write(s_table("int").slice(250))
    found = []

    def handle(batch, _):
        found.extend(multiset(join(batch, relation, on="k", memory=MEMORY)))

    query = stream.df.writeStream.foreachBatch(handle).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(found) == spark_join(spark, s_table("int"), r_table("int"), ["k"], "inner")


def test_counts_and_names_reach_sparks_reports_and_its_plan(spark, tmp_path, run):
    relation = Relation.build(pa.table({"id": range(0, 200, 2), "v": range(100)}), tmp_path / "products", key="id")
    stream = FileStream(spark, tmp_path / "s", pa.table({"id": range(150)}))
    stream.write(pa.table({"id": pa.array([], pa.int64())}))
    stream.write(pa.table({"id": range(20)}))
    joined = join(stream.df, relation, on="id", how="left", memory=MEMORY, name="looked up")
    query = run(join(joined, relation, on="id", how="inner", memory=MEMORY).drop("v_right"), "counted")
    query.processAllAvailable()
    reports = [join_metrics(progress) for progress in query.recentProgress if progress.numInputRows]
    assert [report["looked up"].rows_in for report in reports] == [150, 20]
    assert [report["looked up"].matched for report in reports] == [75, 10]
    for report in reports:
        (other,) = (name for name in report if name != "looked up")
        assert other.startswith("products-")
        assert report[other].rows_in == report["looked up"].rows_in
        assert report["looked up"].bytes_read + report["looked up"].cache_hits > 0
        assert report["looked up"].peak_bytes > 0
        assert 0 < report["looked up"].seconds < 60
    assert spark.table("counted").count() == 75 + 10
    with redirect_stdout(StringIO()) as plan:
        joined.explain()
    assert "join with products by" in plan.getvalue()
    assert "in 400 kB" in plan.getvalue()
    assert "__semistream" not in str(joined.schema)


def test_a_task_without_results_is_counted_too_and_columns_stay_without_nulls(spark, tmp_path):
    relation = Relation.build(pa.table({"id": [1], "v": ["x"]}), tmp_path / "r", key="id")
    rows = spark.sql("SELECT 7L AS id, 'a' AS s, array(1) AS l, named_struct('x', 1, 'y', 'b') AS n, map('k', 1) AS m")
    observation = join(rows, relation, on="id", how="inner", memory=MEMORY, name="none")
    assert observation.collect() == []
    assert [field.nullable for field in observation.schema][:5] == [False] * 5
    assert join(rows, relation, on="id", how="anti", memory=MEMORY).collect() == rows.collect()
