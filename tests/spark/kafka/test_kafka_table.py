"""A topic of a real broker as a table: rows sent twice have the same headers."""

import json
from collections import Counter

import pytest

from semistream.errors import PipelineError
from tests.spark.kafka.pipelines import run_cut_short
from tests.spark.pipelines.warehouse import Warehouse, orders, run, star

pytestmark = pytest.mark.spark


def test_rows_are_sent_at_least_once_and_doubles_are_told_by_their_headers(spark, broker, tmp_path):
    warehouse, topic = Warehouse(tmp_path), broker.create("enriched", partitions=2)
    stream = orders(400)
    for i in range(4):
        warehouse.put(stream.slice(i * 100, 100), f"{i}.parquet")
    table = {"format": "kafka", "servers": broker.servers, "topic": topic}
    spec = warehouse.spec(source={"files_per_batch": 2}, sink=table, unmatched=table)
    run_cut_short(spark, spec, "semistream.pipelines.tables.outbox", "after hand-over")
    run(spark, spec)
    messages = broker.messages(topic)
    joined, unmatched = star(stream)
    assert len(messages) > joined.total() + unmatched.total()
    told = {tuple(message.headers()): json.loads(message.value()) for message in messages}
    names = ["pipeline", "table", "batch_id", "row"]
    assert all([name for name, _ in headers] == names for headers in told)
    tables = {outcome: [row for h, row in told.items() if dict(h)["table"] == outcome] for outcome in found(told)}
    assert Counter(tuple(row.values()) for row in tables[b"joined"]) == joined
    assert Counter((row["id"], row["stopped_at"]) for row in tables[b"unmatched"]) == unmatched
    assert not list((warehouse.folder / "checkpoint" / "outbox").rglob("*.parquet"))


def found(told):
    return {dict(headers)["table"] for headers in told}


def test_a_missing_topic_is_refused_before_any_work(spark, broker, tmp_path):
    table = {"format": "kafka", "servers": broker.servers, "topic": "nowhere"}
    with pytest.raises(PipelineError, match=r"the topic 'nowhere' of .* cannot be used: .*UnknownTopicOrPartition"):
        run(spark, Warehouse(tmp_path).spec(sink=table))
