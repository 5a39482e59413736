"""Updates of R from a topic of a real broker: upserts and tombstones, each applied once."""

import json

import pyarrow as pa
import pytest

from semistream.errors import PipelineError
from semistream.relation import Relation
from tests.spark.kafka.pipelines import quarantined, run_cut_short
from tests.spark.pipelines.warehouse import Warehouse, orders, products, run

pytestmark = pytest.mark.spark


def product(number, price):
    return str(number), json.dumps({"id": number, "name": f"new {number}", "price": price})


def contents(relation):
    return sorted(tuple(row.values()) for batch in relation.scan() for row in batch.to_pylist())


@pytest.mark.parametrize("point", ["before update", "after update"])
def test_upserts_and_tombstones_are_applied_once(spark, broker, tmp_path, point):
    warehouse = Warehouse(tmp_path)
    topic = broker.create(f"products-{point[:5]}-{point[6:]}".replace(" ", ""), partitions=2)
    updates = {"format": "kafka", "servers": broker.servers, "topic": topic}
    path = warehouse.folder / "products"
    spec = warehouse.spec({"join": {"relation": str(path), "on": {"product": "id"}, "updates": updates}})
    expected = {row["id"]: tuple(row.values()) for row in products().to_pylist()}

    def sent(*messages, partition=0):
        broker.send(topic, messages, partition)
        for key, value in messages:
            if value is None:
                expected.pop(int(key), None)
            else:
                expected[int(key)] = tuple(json.loads(value).values())

    sent(product(2, 1.0), product(2, 2.0), ("4", None), product(6, 3.0), ("6", None), ("8", None), product(8, 4.0))
    broker.send(topic, [("nine", None), (None, None), ("10", "{broken"), ("11", '{"name": "no key"}')], partition=0)
    warehouse.put(orders(200), "0.parquet")
    run_cut_short(spark, spec, "semistream.pipelines.updates.relation_updates", point)
    run(spark, spec)
    assert contents(Relation.open(path)) == sorted(expected.values())
    version = Relation.open(path).version
    sent(product(1, 5.0), partition=1)
    broker.add_partitions(topic, 3)
    sent(product(3, 6.0), ("12", None), partition=2)
    warehouse.put(orders(200, seed=1, first=200), "1.parquet")
    run(spark, spec)
    assert contents(Relation.open(path)) == sorted(expected.values())
    assert Relation.open(path).version == version + 1
    warehouse.put(orders(50, seed=2, first=400), "2.parquet")
    run(spark, spec)
    assert Relation.open(path).version == version + 1
    second = {row["id"]: row for row in warehouse.table("sink").to_pylist() if row["id"] >= 200}
    stream = pa.concat_tables([orders(200, seed=1, first=200), orders(50, seed=2, first=400)]).to_pylist()
    assert {number: row["price"] for number, row in second.items()} == {
        row["id"]: expected[row["product"]][2] for row in stream if row["product"] in expected
    }
    assert quarantined(warehouse.table("quarantine")) == sorted(
        [
            "(no value) key nine, partition 0, offset 7",
            "(no value) key null, partition 0, offset 8",
            "{broken",
            '{"id": null, "name": "no key", "price": null}',
        ]
    )
    assert not list((warehouse.folder / "checkpoint" / "updates").glob("*.parquet"))


def test_a_topic_that_has_lost_messages_stops_the_pipeline(spark, broker, tmp_path):
    warehouse, topic = Warehouse(tmp_path), broker.create("lost")
    updates = {"format": "kafka", "servers": broker.servers, "topic": topic}
    join = {"relation": str(warehouse.folder / "products"), "on": {"product": "id"}, "updates": updates}
    spec = warehouse.spec({"join": join})
    broker.send(topic, [product(1, 1.0)])
    warehouse.put(orders(10), "0.parquet")
    run(spark, spec)
    broker.send(topic, [product(3, 1.0)] * 5)
    broker.delete_before(topic, 4)
    warehouse.put(orders(10, first=10), "1.parquet")
    with pytest.raises(PipelineError, match=r"read up to offset 1 of partition 0 of the topic 'lost'.* from 4 to 6"):
        run(spark, spec)
