"""A topic of a real broker as a source: every message ends in one place, whatever its content, despite kills."""

import json

import pyarrow as pa
import pytest

from tests.spark.kafka.pipelines import as_messages, quarantined, run_cut_short, topic_source
from tests.spark.pipelines.warehouse import Warehouse, orders, rows, run, star

pytestmark = pytest.mark.spark


@pytest.fixture
def warehouse(tmp_path):
    return Warehouse(tmp_path)


@pytest.mark.parametrize(("value", "point"), [("json", "after planned"), ("csv", "after prepared")])
def test_each_message_is_joined_once_over_restarts(spark, broker, warehouse, value, point):
    topic = broker.create(f"orders-{value}", partitions=2)
    first, second = orders(300), orders(100, seed=1, first=300)
    broker.send(topic, as_messages(first, value))
    spec = {**warehouse.spec(), "source": topic_source(broker, topic, value=value, rows_per_batch=200)}
    run_cut_short(spark, spec, "semistream.pipelines.ledger.ledger", point)
    reports = run(spark, spec)
    assert [report.replayed for report in reports] == [point == "after prepared", False]
    broker.send(topic, as_messages(second, value))
    (report,) = run(spark, spec)
    assert report.rows_in == 100
    joined, unmatched = star(pa.concat_tables([first, second]))
    assert rows(warehouse.table("sink")) == joined
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched
    assert warehouse.table("quarantine").num_rows == 0


def test_messages_that_are_no_rows_go_to_the_quarantine_as_they_were(spark, broker, warehouse):
    topic = broker.create("poisoned", max_message_bytes=20_000_000)
    good = orders(20)
    huge = {"id": 100, "product": 1, "customer": "h" * 200_000, "quantity": 1, "amount": 1.0}
    braces = {"id": 101, "product": 1, "customer": "{}}", "quantity": 1, "amount": 1.0}
    row = json.dumps(good.slice(0, 1).to_pylist()[0])
    poison = [
        "{broken", "[]", "null", "", " \n", "text", f"[{row}]", row + row, f"{row} and more",
        row.replace("{", '{"quantity": "many", '), row.replace("}", ', "amount": [1]}'), '{"id": "' + "x" * 2_000_000,
    ]  # fmt: skip
    broker.send(topic, as_messages(good))
    broker.send(topic, [("a", text) for text in poison])
    broker.send(topic, [("gone", None), (None, None), (None, b'{"id": \xff}')])
    broker.send(topic, [(None, json.dumps(huge)), (None, json.dumps(braces) + "\n")])
    (report,) = run(spark, {**warehouse.spec(memory="256MB"), "source": topic_source(broker, topic)})
    assert report.outcomes["invalid"] == len(poison) + 3
    assert quarantined(warehouse.table("quarantine")) == sorted(
        [
            *poison,
            "(no value) key gone, partition 0, offset 32",
            "(no value) key null, partition 0, offset 33",
            '{"id": \N{REPLACEMENT CHARACTER}}',
        ]
    )
    joined, unmatched = star(pa.concat_tables([good, pa.Table.from_pylist([huge, braces], good.schema)]))
    assert rows(warehouse.table("sink")) == joined
    stopped = warehouse.table("unmatched")
    assert rows(stopped, "id", "stopped_at") == unmatched
    assert {huge["customer"], braces["customer"]} <= set(stopped.column("customer").to_pylist())


def test_lines_of_csv_that_are_no_rows_go_to_the_quarantine(spark, broker, warehouse):
    topic = broker.create("poisoned-csv")
    good = orders(10)
    poison = ["", "1;2", "1;2;c1;many;1.0", "1;2;c1;1;1.0;more"]
    broker.send(topic, [(None, text.replace(",", ";")) for _, text in as_messages(good, "csv")])
    broker.send(topic, [(None, text) for text in poison])
    source = topic_source(broker, topic, value="csv", options={"sep": ";"})
    run(spark, {**warehouse.spec(), "source": source})
    assert quarantined(warehouse.table("quarantine")) == sorted(poison)
    assert rows(warehouse.table("sink")) == star(good)[0]


def test_offsets_without_a_message_are_passed_over(spark, broker, warehouse):
    topic = broker.create("compacted", cleanup_policy="compact", segment_ms=50, min_cleanable_dirty_ratio=0.01)
    stream = orders(60)

    def there():
        values = [json.loads(message.value()) for message in broker.messages(topic)]
        return pa.Table.from_pylist(values, stream.schema)

    for _ in range(3):  # three messages of each key
        broker.send(topic, ((str(row % 10), value) for row, (_key, value) in enumerate(as_messages(stream))))
    sent = 180
    while there().num_rows == sent:  # each message lets Kafka begin a new segment, and look at the old ones
        broker.send(topic, [(f"last {sent}", json.dumps(stream.slice(0, 1).to_pylist()[0]))])
        sent += 1
    before = there()
    assert before.num_rows < sent
    run(spark, {**warehouse.spec(), "source": topic_source(broker, topic)})
    joined, unmatched = rows(warehouse.table("sink")), rows(warehouse.table("unmatched"), "id", "stopped_at")
    for found, most, least in zip((joined, unmatched), star(before), star(there()), strict=True):
        assert least <= found <= most  # Kafka may have gone on with it meanwhile
    assert warehouse.table("quarantine").num_rows == 0


def test_messages_of_a_transaction_that_was_given_up_are_not_read(spark, broker, warehouse):
    topic, stream = broker.create("aborted"), orders(20)
    broker.abort(topic, [json.dumps({**row, "id": -1}) for row in stream.to_pylist()])
    broker.send(topic, as_messages(stream))
    run(spark, {**warehouse.spec(), "source": topic_source(broker, topic)})
    joined, unmatched = star(stream)
    assert rows(warehouse.table("sink")) == joined
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched
