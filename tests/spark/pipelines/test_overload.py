"""Pipelines with too many rows for their goal: shed rows are archived, reported, and repaired exactly."""

from __future__ import annotations

import json
from collections import Counter

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.errors import PipelineError
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.status import pipeline_state
from semistream.relation import Relation
from semistream.shedding import estimate
from tests.spark.pipelines.overloads import (
    MOST_JOINED,
    archive_ids,
    archived_rows,
    cut_short,
    overloaded,
    reconcile,
    slow_service,
)
from tests.spark.pipelines.warehouse import orders, products, rows, run, star

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("source", "format"), [("parquet", "delta"), ("json", "parquet")])
def test_what_is_shed_is_archived_and_repaired_so_that_nothing_is_missing(spark, warehouse, source, format):
    stream = orders(700)
    for i in range(3):
        warehouse.put(stream.slice(i * 250, 250), f"{i}.{source}", source)
    spec = overloaded(warehouse, source={"format": source}, format=format)
    with slow_service():
        (report,) = run(spark, spec)
    assert sum(report.outcomes.values()) == report.rows_in == 700
    assert 0.8 * MOST_JOINED <= report.outcomes["joined"] + report.outcomes["unmatched"] <= MOST_JOINED
    assert report.overload.shed_rows == report.outcomes["shed"] == archived_rows(warehouse.folder)
    seen = warehouse.table("sink").column("id").to_pylist() + warehouse.table("unmatched").column("id").to_pylist()
    shed = archive_ids(warehouse.folder)
    assert Counter(seen + shed) == Counter(range(700)), "each row is in one table or in the archive"
    pieces = [piece for each in Ledger.read(warehouse.folder / "checkpoint", "orders").archived for piece in each.files]
    assert any(piece.part is not None for piece in pieces) == (source == "parquet"), "a whole file is copied"
    line = warehouse.metrics()[-1]
    assert line["shed"] == line["overload"]["archived_rows"] == len(shed)
    assert 0 < line["overload"]["p50_s"] <= line["overload"]["p99_s"]
    truth = sum(1 for i in shed if stream.column("product")[i].as_py() % 2 == 0)
    assert line["overload"]["results_missing_low"] <= truth <= line["overload"]["results_missing_high"] == len(shed)
    state = pipeline_state(warehouse.folder / "checkpoint", "orders")
    assert (state.missing.rows, state.missing.results_high) == (len(shed), len(shed))

    (repair,) = reconcile(spark, spec)
    assert (repair.source_batch, repair.rows_in, repair.outcomes["shed"]) == (None, len(shed), 0)
    joined, unmatched = star(stream)
    assert rows(warehouse.table("sink")) == joined
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched
    assert (archive_ids(warehouse.folder), archived_rows(warehouse.folder)) == ([], 0)
    assert pipeline_state(warehouse.folder / "checkpoint", "orders").missing.rows == 0
    assert reconcile(spark, spec) == []


@pytest.mark.parametrize(
    ("source", "loss", "routes"),
    [
        ("parquet", "max_subset", ("none", "none")),
        ("parquet", "random_sample", ("range", "none")),
        ("parquet", "random_sample", ("none", "range")),
        ("json", "random_sample", ("none", "none")),
    ],
)
def test_a_replay_sheds_the_same_rows(spark, warehouse, source, loss, routes):
    """Compare the files of a batch whose driver died with the files of its replay."""
    stream = orders(600)
    for i in range(3):
        warehouse.put(stream.slice(i * 200, 200), f"{i}.{source}", source)
    specs = [
        overloaded(warehouse, format="parquet", source={"format": source}, overload={"loss": loss}, route=route)
        for route in routes
    ]
    with slow_service():
        cut_short(spark, specs[0], "before prepared")
    written = (warehouse.folder / "tables" / "archive" / "_staging").rglob("*.parquet")
    before = sorted(id for path in written for id in pq.ParquetFile(path).read().column("id").to_pylist())
    assert len(before) > 300
    assert archive_ids(warehouse.folder) == [], "nothing of it is to be seen"
    with slow_service(row_s=1.0):  # it would be decided otherwise now
        (report,) = run(spark, specs[1])
    assert report.outcomes["shed"] == len(before)
    assert archive_ids(warehouse.folder) == before
    reconcile(spark, specs[1])
    assert rows(warehouse.table("sink")) == star(stream)[0]


def test_a_decision_is_kept_though_nothing_was_done_yet(spark, warehouse, monkeypatch):
    warehouse.put(orders(600), "0.parquet")
    spec = overloaded(warehouse)

    def fail(*_):
        raise PipelineError("the disk is full")

    with slow_service():
        with monkeypatch.context() as patch:
            patch.setattr("semistream.spark.pipelines.spark_workers.SparkWorkers.run_phase", fail)
            with pytest.raises(PipelineError, match="the disk is full"):
                run(spark, spec)
        entry = warehouse.folder / "checkpoint" / "batches" / "000000000000.shed.json"
        decided = json.loads(entry.read_text())
        state = pipeline_state(warehouse.folder / "checkpoint", "orders")
        assert state.stage == "planned, will shed some of its rows"
    with slow_service(row_s=1.0):  # it would be decided otherwise now
        (report,) = run(spark, spec)
    assert json.loads(entry.read_text()) == decided
    assert report.outcomes["shed"] == 600 - decided["joined"]


def test_a_pipeline_that_keeps_up_sheds_nothing_and_writes_no_entry(spark, warehouse):
    stream = orders(700)
    warehouse.put(stream, "0.parquet")
    (report,) = run(spark, overloaded(warehouse))
    assert (report.outcomes["shed"], report.overload.missing.rows) == (0, 0)
    assert report.overload.latencies.p99_s < 60
    assert rows(warehouse.table("sink")) == star(stream)[0]
    assert list((warehouse.folder / "checkpoint" / "batches").glob("*.shed.json")) == []
    assert not (warehouse.folder / "checkpoint" / "archived").exists()


def many_products(warehouse):
    """A relation in which product i has i % 7 rows."""
    table = products()
    each = pa.concat_tables([table.slice(i, 1) for i in range(table.num_rows) for _ in range(int(i) % 7)])
    Relation.build(each, warehouse.folder / "many", key="id", page_bytes=2048)
    return each


@pytest.mark.parametrize("source", ["parquet", "json"])
def test_the_rows_with_the_most_results_are_kept_and_the_loss_is_known(spark, warehouse, source):
    many, stream = many_products(warehouse), orders(600)
    warehouse.put(stream, f"0.{source}", source)
    join = {"join": {"relation": str(warehouse.folder / "many"), "on": {"product": "id"}}}
    spec = overloaded(warehouse, join, source={"format": source})
    with slow_service():
        (report,) = run(spark, spec)
    with duckdb.connect() as connection:
        connection.register("s", stream)
        connection.register("m", many)
        results = dict(
            connection.sql("SELECT s.id, count(m.id) FROM s LEFT JOIN m ON product = m.id GROUP BY 1").fetchall()
        )
        whole = Counter(connection.sql("SELECT s.*, m.name, m.price FROM s JOIN m ON product = m.id").fetchall())
    shed = archive_ids(warehouse.folder)
    kept = sorted((results[i] for i in set(range(600)) - set(shed)), reverse=True)
    assert kept == sorted(results.values(), reverse=True)[: len(kept)], "rows with more results were shed"
    lost = sum(results[i] for i in shed)
    missing = report.overload.missing
    assert (missing.results_low, missing.results_high) == (lost, lost)
    reconcile(spark, spec)
    assert rows(warehouse.table("sink")) == whole


def test_a_stream_of_one_key_and_no_time_at_all(spark, warehouse):
    stream = orders(300).set_column(1, "product", pa.array([6] * 300))
    warehouse.put(stream, "0.parquet")
    many_products(warehouse)
    join = {"join": {"relation": str(warehouse.folder / "many"), "on": {"product": "id"}}}
    spec = overloaded(warehouse, join, overload={"repair": "idle"})
    with slow_service(row_s=1000.0):
        first, second = run(spark, spec)
    assert first.outcomes["shed"] == 300, "w = 0"
    assert (second.rows_in, second.outcomes["shed"]) == (300, 0), "once all is in, there is time"
    assert warehouse.table("sink").num_rows == 900, "three results for each"
    assert archived_rows(warehouse.folder) == 0


def test_a_goal_below_the_time_of_a_batch_is_told_and_rows_still_go_on(spark, warehouse):
    stream = orders(300)
    warehouse.put(stream, "0.parquet")
    spec = overloaded(warehouse, overload={"latency": "300ms"})
    (report,) = run(spark, spec)
    remark = report.remarks[-1]
    assert "the goal of 0.3 s cannot be met: a batch takes" in remark
    assert "Raise overload.latency to at least" in remark
    assert report.overload.latencies.p50_s > report.overload.goal_s == 0.3
    assert report.outcomes["joined"] + report.outcomes["unmatched"] > 0
    assert sum(report.outcomes.values()) == 300
    reconcile(spark, spec)
    assert rows(warehouse.table("sink")) == star(stream)[0]


def test_a_sample_carries_weights_and_repaired_rows_stand_for_nothing(spark, warehouse):
    stream = orders(700)
    warehouse.put(stream, "0.parquet")
    join = {"join": {"relation": str(warehouse.folder / "products"), "on": {"product": "id"}}}
    spec = overloaded(warehouse, join, overload={"loss": "random_sample", "weights": True})
    with slow_service():
        (report,) = run(spark, spec)
    told = estimate(warehouse.table("sink"), "count(*)", confidence=0.9999).to_pylist()[0]
    truth = sum(1 for product in stream.column("product").to_pylist() if product % 2 == 0)
    assert report.outcomes["shed"] > 400
    assert told["low"] <= truth <= told["high"]
    assert told["standard_error"] > 0
    reconcile(spark, spec)
    table = warehouse.table("sink")
    assert table.num_rows == truth
    assert estimate(table, "count(*)", confidence=0.9999).to_pylist()[0]["estimate"] == pytest.approx(told["estimate"])


def test_surrogate_keys_of_repaired_rows_are_unique_and_consecutive(spark, warehouse):
    stream = orders(500)
    warehouse.put(stream, "0.parquet")
    keys = {"relation": str(warehouse.folder / "keys"), "key": "id", "into": "order_key"}
    spec = overloaded(warehouse, {"surrogate_key": keys})
    with slow_service():
        run(spark, spec)
    reconcile(spark, spec)
    table = warehouse.table("sink")
    assert rows(table, *stream.column_names) == rows(stream)
    assert sorted(table.column("order_key").to_pylist()) == list(range(1, 501))


def test_an_archive_that_cannot_be_written_stops_the_pipeline(spark, warehouse, monkeypatch):
    warehouse.put(orders(600), "0.parquet")
    spec = overloaded(warehouse, format="parquet")
    archive = warehouse.folder / "tables" / "archive"
    archive.parent.mkdir()
    archive.write_text("in the way")
    with pytest.raises(PipelineError, match="archive cannot be created"):
        run(spark, spec)
    archive.unlink()
    with slow_service():
        with monkeypatch.context() as patch:
            patch.setattr("semistream.pipelines.tables.parquet.ParquetSink.commit", _full_archive)
            with pytest.raises(PipelineError, match="no space in the archive"):
                run(spark, spec)
        assert archive_ids(warehouse.folder) == []
        run(spark, spec)
    shed = archive_ids(warehouse.folder)
    seen = warehouse.table("sink").column("id").to_pylist() + warehouse.table("unmatched").column("id").to_pylist()
    assert Counter(seen + shed) == Counter(range(600))


def _full_archive(table, batch, files):
    if table.path.name == "archive":
        raise PipelineError("no space in the archive")
    originals(table, batch, files)


def originals(table, batch, files):
    for file, shown in zip(files, table.shown(batch, files), strict=True):
        if not (table.path / shown).exists():
            (table.path / file.path).rename(table.path / shown)


def test_invalid_rows_go_to_the_quarantine_and_are_not_shed(spark, warehouse):
    stream = orders(600)
    warehouse.put(stream, "0.parquet")
    wrong = pa.table({"id": [1, 2, 3]})
    pq.write_table(wrong, warehouse.folder / "orders" / "1.parquet")
    spec = overloaded(warehouse, source={"rules": [{"column": "quantity", "min": 4}]})
    with slow_service():
        (report,) = run(spark, spec)
    few = sum(1 for quantity in stream.column("quantity").to_pylist() if quantity < 4)
    assert report.outcomes["invalid"] == few + 3 == warehouse.table("quarantine").num_rows
    assert report.outcomes["shed"] == len(archive_ids(warehouse.folder))
    reconcile(spark, spec)
    good = stream.filter(pa.compute.greater_equal(stream.column("quantity"), 4))
    assert rows(warehouse.table("sink")) == star(good)[0]
