"""A topic of a real broker with too many messages: they are archived unchanged, reported, and repaired."""

import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from semistream.pipelines.status import pipeline_state
from tests.spark.kafka.pipelines import as_messages, quarantined, topic_source
from tests.spark.pipelines.overloads import MOST_JOINED, archived_rows, overloaded, reconcile, slow_service
from tests.spark.pipelines.warehouse import SCHEMA, Warehouse, orders, rows, run, star

pytestmark = pytest.mark.spark

WAITED_S = 100


def test_messages_that_there_is_no_time_for_are_archived_and_repaired(spark, broker, tmp_path, monkeypatch):
    warehouse, topic = Warehouse(tmp_path), broker.create("burst", partitions=2)
    first, second = orders(600), orders(100, seed=1, first=600)
    sent_ms = int(time.time() * 1000) - WAITED_S * 1000
    broker.send(topic, as_messages(first), at_ms=sent_ms)
    broker.send(topic, [("a", "{broken"), ("gone", None)], partition=1)
    spec = {**overloaded(warehouse), "source": topic_source(broker, topic)}
    with slow_service():
        (report,) = run(spark, spec)
    assert sum(report.outcomes.values()) == report.rows_in == 602
    assert report.outcomes["invalid"] == 2
    assert report.outcomes["shed"] >= 600 - MOST_JOINED
    assert WAITED_S <= report.overload.latencies.p50_s <= report.at - sent_ms / 1000 + 1, "the lag of the messages"

    archive = warehouse.table("archive")
    shed = first.filter(pc.is_in(first.column("id"), archive.column("id").combine_chunks()))
    assert rows(archive, *SCHEMA) == rows(shed), "rows are not as they came"
    assert archive.column("came_at").unique().cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist() == [sent_ms]
    missing = pipeline_state(warehouse.folder / "checkpoint", "orders").missing
    assert missing.rows == archive.num_rows
    assert missing.since == pytest.approx(sent_ms / 1000, abs=0.01), "since when the first row is missing"

    broker.send(topic, as_messages(second))
    with monkeypatch.context() as patch:  # offsets tell that all of them can be joined: they are not read before
        patch.setattr("semistream.spark.pipelines.spark_workers.summarize_parts", None)
        (report,) = run(spark, spec)
    assert (report.rows_in, report.outcomes["shed"]) == (100, 0)
    assert report.overload.missing.rows == archive.num_rows
    assert report.overload.oldest_s >= WAITED_S

    reconcile(spark, spec)
    joined, unmatched = star(pa.concat_tables([first, second]))
    assert rows(warehouse.table("sink")) == joined
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched
    assert len(quarantined(warehouse.table("quarantine"))) == 2
    assert (warehouse.table("archive").num_rows, archived_rows(warehouse.folder)) == (0, 0)
