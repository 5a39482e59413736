"""Features that need more than one batch: snapshots, updates of R, deadlines, routing, generated rows."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from semistream.relation import Relation
from tests.spark.pipelines.warehouse import orders, put, rows, run, star

pytestmark = pytest.mark.spark
SNAPSHOT = {"id": "bigint", "name": "string", "price": "double"}


def snapshot(seed):
    """A table of which some rows come, go and change with the seed."""
    generator = np.random.default_rng(seed)
    ids = np.sort(generator.choice(300, 200, replace=False))
    names = [None if i % 17 == 0 else f"n{i}" for i in ids]
    prices = np.where(generator.random(200) < 0.2, seed, ids / 2)
    return pa.table({"id": ids, "name": pa.array(names, pa.string()), "price": prices})


def differences(before, after):
    """Return the changes found by DuckDB."""
    with duckdb.connect() as connection:
        connection.register("b", before)
        connection.register("a", after)
        return connection.sql(
            """
            SELECT COALESCE(a.id, b.id), CASE WHEN b.id IS NULL THEN 'inserted' WHEN a.id IS NULL THEN 'deleted'
                   ELSE 'updated' END,
                   CASE WHEN a.id IS NULL THEN b.price ELSE a.price END
            FROM a FULL JOIN b ON a.id = b.id
            WHERE a.id IS NULL OR b.id IS NULL OR a.name IS DISTINCT FROM b.name OR a.price IS DISTINCT FROM b.price
            """
        ).fetchall()


@pytest.mark.parametrize("kind", ["files", "folders"])
def test_snapshots_are_compared_with_the_one_before(spark, warehouse, kind):
    folder = warehouse.folder / "snapshots"
    tables = [snapshot(seed) for seed in range(3)]
    for number, table in enumerate(tables):
        if kind == "files":
            put(table, folder / f"{number}.parquet")
        else:
            put(table.slice(0, 90), folder / str(number) / "a.parquet")
            put(table.slice(90), folder / str(number) / "b.parquet")
            if number < 2:
                (folder / str(number) / "_SUCCESS").touch()
    source = {"format": "parquet", "path": str(folder), "schema": SNAPSHOT, "snapshots": kind}
    step = {"changes": {"relation": str(warehouse.folder / "last"), "key": "id"}}
    spec = warehouse.spec(step, source=source)
    reports = run(spark, spec)
    if kind == "folders":
        assert len(reports) == 2
        (folder / "2" / "_SUCCESS").touch()
        reports += run(spark, spec)
    empty = tables[0].slice(0, 0)
    expected = [row for pair in zip([empty, *tables], tables, strict=False) for row in differences(*pair)]
    found = warehouse.table("sink")
    assert rows(found, "id", "change", "price") == rows(
        pa.table(list(zip(*expected, strict=True)), names=["i", "c", "p"])
    )
    assert rows(Relation.open(warehouse.folder / "last").scan().read_all()) == rows(tables[2])
    assert [report.rows_in for report in reports] == [200] * 3
    deleted = [row for row in differences(tables[1], tables[2]) if row[1] == "deleted"]
    assert reports[2].counts["deleted"] == len(deleted)


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_updates_of_the_relation_are_applied_between_batches(spark, warehouse, format):
    changes = warehouse.folder / "changes"
    changes.mkdir()
    options = {"header": "true"} if format == "csv" else {}
    updates = {"format": format, "path": str(changes), "op": "op", "options": options}
    join = {"relation": str(warehouse.folder / "products"), "on": {"product": "id"}, "updates": updates}
    spec = warehouse.spec({"join": join}, source={"files_per_batch": 1})
    stream = orders(100)
    warehouse.put(stream, "0.parquet")
    run(spark, spec)
    first = warehouse.table("sink")
    table = pa.table(
        {
            "id": [1, 2, 4, 3, 3],
            "name": ["one", "two", "", "late", "three"],
            "price": [1.0, 2.0, 0.0, 0.0, 3.0],
            "op": ["U", "U", "D", "U", "U"],
        }
    )
    put(table, changes / f"a.{format}", format)
    again = orders(100, first=100)
    warehouse.put(again, "1.parquet")
    run(spark, spec)
    run(spark, spec)
    relation = Relation.open(warehouse.folder / "products")
    assert relation.version == 2
    known = {row["id"]: row["name"] for row in relation.scan().read_all().to_pylist()}
    assert (known[1], known[2], known[3], 4 in known) == ("one", "two", "three", False)
    second = warehouse.table("sink").filter(pa.compute.greater_equal(warehouse.table("sink").column("id"), 100))
    expected = [(row["id"], known[row["product"]]) for row in again.to_pylist() if row["product"] in known]
    assert sorted(zip(second.column("id").to_pylist(), second.column("name").to_pylist(), strict=True)) == expected
    assert first.num_rows + second.num_rows == warehouse.table("sink").num_rows


def test_unusable_rows_of_an_update_go_to_the_quarantine(spark, warehouse):
    changes = warehouse.folder / "changes"
    changes.mkdir()
    (changes / "a.json").write_text(
        '{broken\n{"id": null, "name": "x", "price": 1.0}\n{"id": 1, "name": "y", "price": 2}\n'
    )
    updates = {"format": "json", "path": str(changes)}
    join = {"relation": str(warehouse.folder / "products"), "on": {"product": "id"}, "updates": updates}
    warehouse.put(orders(50), "0.parquet")
    (report,) = run(spark, warehouse.spec({"join": join}))
    assert report.counts["invalid_updates"] == 2
    reasons = warehouse.table("quarantine").column("reason").to_pylist()
    assert sorted(reasons) == [
        "a row without its key (id)",
        "the row cannot be read with the source's columns and types",
    ]
    assert Relation.open(warehouse.folder / "products").lookup([1]).column("name").to_pylist() == ["y"]


def test_rows_may_go_to_the_owner_of_their_key(spark, warehouse):
    stream = orders(400)
    for i in range(2):
        warehouse.put(stream.slice(i * 200, 200), f"{i}.parquet")
    run(spark, warehouse.spec(route="range", source={"files_per_batch": 1}))
    joined, unmatched = star(stream)
    assert rows(warehouse.table("sink")) == joined
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched


def test_rows_that_are_not_hot_wait_for_a_pass_and_none_is_lost(spark, warehouse):
    more = pa.table({"id": np.arange(1000, 200_000)})  # than fit the memory
    more = more.append_column("name", pa.repeat("never ordered", more.num_rows))
    more = more.append_column("price", pa.array(np.zeros(more.num_rows)))
    Relation.open(warehouse.folder / "products").update(more)
    stream = orders(600)
    for i in range(6):
        warehouse.put(stream.slice(i * 100, 100), f"{i}.parquet")
    reports = run(spark, warehouse.spec(source={"files_per_batch": 1}, latency="1 hour", memory="4MB"))
    joined, unmatched = star(stream)
    assert rows(warehouse.table("sink")) == joined
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched
    assert sum(report.outcomes["pending"] for report in reports[:-1]) > 0
    assert reports[-1].source_batch is None
    assert reports[-1].waiting_rows == 0


def test_no_row_waits_for_relations_that_are_in_memory(spark, warehouse):
    warehouse.put(orders(200), "0.parquet")
    (report,) = run(spark, warehouse.spec(latency="1 hour"))
    assert report.outcomes["pending"] == 0
    assert report.hit_rate == 1.0
    assert rows(warehouse.table("sink")) == star(orders(200))[0]


def test_made_up_rows_are_the_same_whenever_they_are_made(spark, warehouse):
    source = {"format": "generator", "keys": 400, "rate": 500, "rows": 1200, "seed": 3}
    join = {"relation": str(warehouse.folder / "products"), "on": {"key": "id"}, "unmatched": None}
    spec = {**warehouse.spec({"join": join}), "source": source}
    reports = run(spark, spec)
    assert sum(report.rows_in for report in reports) == 1200
    assert len(reports) == 3
    from semistream.datasets import Zipf

    expected = next(Zipf(1.0, 400, seed=3).batches(1200))
    assert rows(warehouse.table("sink"), "key", "seq") == rows(pa.table(expected))


@pytest.mark.parametrize("columns", [{"price": "unit_price"}, {"price": "unit_price", "id": "number"}, "price"])
def test_columns_of_a_join_can_be_renamed(spark, warehouse, columns):
    stream = orders(50)
    warehouse.put(stream, "0.parquet")
    join = {"relation": str(warehouse.folder / "products"), "on": {"product": "id"}, "columns": columns}
    run(spark, warehouse.spec({"join": join}))
    joined, unmatched = warehouse.table("sink"), warehouse.table("unmatched")
    names = list(columns.values()) if isinstance(columns, dict) else [columns]
    assert joined.column_names == [*stream.column_names, *names]
    assert joined.num_rows == sum(product % 2 == 0 for product in stream.column("product").to_pylist())
    assert joined.num_rows + unmatched.num_rows == 50
    for row in joined.to_pylist():
        assert row[names[0]] == row["product"] / 4
        assert row.get("number", row["product"]) == row["product"]
