"""Pipelines from files to tables: the results equal DuckDB's, and every row is counted."""

from collections import Counter

import pyarrow as pa
import pytest

from semistream.spark.pipelines.pipeline import Pipeline
from tests.spark.pipelines.warehouse import orders, put, rows, run, star

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format", ["delta", "parquet"])
@pytest.mark.parametrize("source", ["parquet", "json", "csv"])
def test_a_star_schema_equals_the_batch_join(spark, warehouse, source, format):
    stream = orders(700)
    for i in range(4):
        warehouse.put(stream.slice(i * 175, 175), f"{i}.{source}", source)
    changes = {"format": source, "files_per_batch": 3, "options": {"header": "true"} if source == "csv" else {}}
    reports = run(spark, warehouse.spec(format=format, source=changes))
    joined, unmatched = star(stream)
    assert rows(warehouse.table("sink")) == joined
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched
    assert warehouse.table("quarantine").num_rows == 0
    assert [report.rows_in for report in reports] == [525, 175]
    total = Counter()
    for report in reports:
        assert sum(report.outcomes.values()) == report.rows_in
        total.update(report.outcomes)
    assert (total["joined"], total["unmatched"]) == (joined.total(), unmatched.total())
    assert [line["rows_in"] for line in warehouse.metrics()] == [525, 175]


def test_a_second_run_goes_on_where_the_first_has_ended(spark, warehouse):
    first, second = orders(200), orders(150, seed=1, first=200)
    warehouse.put(first, "0.parquet")
    spec = warehouse.spec()
    run(spark, spec)
    assert run(spark, spec) == []
    warehouse.put(second, "1.parquet")
    (report,) = run(spark, spec)
    assert report.rows_in == 150
    assert rows(warehouse.table("sink")) == star(pa.concat_tables([first, second]))[0]


def test_a_pipeline_that_is_stopped_finishes_its_batch_and_goes_on_the_next_time(spark, warehouse):
    stream = orders(400)
    for i in range(8):
        warehouse.put(stream.slice(i * 50, 50), f"{i}.parquet")
    spec, reports = warehouse.spec(source={"files_per_batch": 1}), []
    Pipeline.from_dict(spec).run(spark, watch=reports.append, stopping=lambda: len(reports) >= 2)
    assert 2 <= len(reports) < 8
    assert rows(warehouse.table("sink")) == star(stream.slice(0, 50 * len(reports)))[0]
    reports += run(spark, spec)
    assert [report.rows_in for report in reports[:2]] == [50] * 2
    assert sum(report.rows_in for report in reports) == 400  # Spark may have listed the next file when it was stopped
    assert rows(warehouse.table("sink")) == star(stream)[0]


def test_surrogate_keys_are_consecutive_and_the_same_for_the_same_key(spark, warehouse):
    stream = orders(500)
    for i in range(3):
        warehouse.put(stream.slice(i * 170, 170), f"{i}.parquet")
    step = {
        "surrogate_key": {
            "relation": str(warehouse.folder / "keys"), "key": "customer", "into": "customer_key", "source": "shop",
        }
    }  # fmt: skip
    spec = warehouse.spec(step, source={"files_per_batch": 1})
    run(spark, spec)
    table = warehouse.table("sink")
    assert table.column_names == [*stream.column_names, "customer_key"]
    assert rows(table, *stream.column_names) == rows(stream)
    numbers = dict(zip(table.column("customer").to_pylist(), table.column("customer_key").to_pylist(), strict=True))
    assert len(set(rows(table, "customer", "customer_key"))) == len(numbers)
    assert sorted(numbers.values()) == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("mode", ["drop", "flag"])
def test_duplicates_are_told_whenever_they_come(spark, warehouse, mode):
    stream = orders(300)
    doubled = pa.concat_tables([stream.slice(0, 200), stream.slice(100, 100)])  # 100 twice, in one batch
    warehouse.put(doubled, "0.parquet")
    warehouse.put(stream.slice(150), "1.parquet")  # 50 were there before
    step = {"deduplicate": {"relation": str(warehouse.folder / "seen"), "key": "id", "mode": mode}}
    tables = {"duplicates": {"path": str(warehouse.folder / "tables" / "duplicates")}} if mode == "drop" else {}
    reports = run(spark, warehouse.spec(step, source={"files_per_batch": 1}, **tables))
    table = warehouse.table("sink")
    if mode == "drop":
        assert rows(table) == rows(stream)
        assert warehouse.table("duplicates").num_rows == 150
        assert [report.outcomes["duplicate"] for report in reports] == [100, 50]
    else:
        assert table.num_rows == 450
        first = table.filter(pa.compute.invert(table.column("is_duplicate")))
        assert rows(first, *stream.column_names) == rows(stream)


def test_rows_without_a_partner_wait_for_it(spark, warehouse):
    from semistream.relation import Relation

    stream = orders(200)
    warehouse.put(stream, "0.parquet")
    join = {"relation": str(warehouse.folder / "products"), "on": {"product": "id"}, "unmatched": "retry"}
    spec = warehouse.spec({"join": join})
    (first,) = run(spark, spec)
    odd = [p for p in stream.column("product").to_pylist() if p % 2]
    assert first.outcomes["pending"] == len(odd) > 0
    assert run(spark, spec) == []
    late = sorted(set(odd))[:10]
    table = pa.table({"id": late, "name": ["late"] * len(late), "price": [0.5] * len(late)})
    Relation.open(warehouse.folder / "products").update(upserts=table)
    (second,) = run(spark, spec)
    came = sum(p in late for p in odd)
    assert second.outcomes["joined"] == came
    assert second.outcomes["pending"] == len(odd) - came
    assert warehouse.table("sink").num_rows == 200 - len(odd) + came
    expired = Pipeline.from_dict({**spec, "steps": [{"join": {**join, "retry_for": "1ms"}}]})
    expired.run(spark, once=True)
    assert warehouse.table("unmatched").num_rows == len(odd) - came


def test_columns_are_computed_by_spark(spark, warehouse):
    stream = orders(200)
    warehouse.put(stream, "0.parquet")
    join = {"join": {"relation": str(warehouse.folder / "products"), "on": {"half": "id"}, "unmatched": None}}
    spec = warehouse.spec(
        {"compute": {"half": "product div 2 * 2"}},
        join,
        {"compute": {"total": "price * quantity", "large": "total > 99"}},
    )
    del spec["unmatched"]
    run(spark, spec)
    expected = Counter(
        (row["id"], row["product"] // 2 * 2, (row["product"] // 2 * 2) / 4 * row["quantity"])
        for row in stream.to_pylist()
    )
    table = warehouse.table("sink")
    assert rows(table, "id", "half", "total") == expected
    assert table.column("large").to_pylist() == [total > 99 for total in table.column("total").to_pylist()]


def test_invalid_rows_go_to_the_quarantine_with_the_reason(spark, warehouse):
    folder = warehouse.folder / "orders"
    good = orders(50)
    put(good, folder / "0.json", "json")
    bad = [
        "{broken",
        '{"id": "x", "product": 2, "customer": "c1", "quantity": 1, "amount": 1.0}',
        '{"id": 1001, "product": 2, "customer": "c1", "quantity": 0, "amount": 1.0}',
        '{"id": 1002, "product": null, "customer": "c1", "quantity": 1, "amount": 1.0}',
        '{"id": 1003, "product": 2, "customer": "zz", "quantity": 1, "amount": 1.0}',
    ]
    (folder / "1.json").write_text("\n".join(bad) + "\n")
    rules = [
        {"column": "quantity", "min": 1},
        {"column": "product", "not_null": True},
        {"column": "customer", "one_of": [f"c{i}" for i in range(60)]},
    ]
    run(spark, warehouse.spec(source={"format": "json", "rules": rules}))
    quarantine = warehouse.table("quarantine")
    reasons = dict(zip(quarantine.column("raw").to_pylist(), quarantine.column("reason").to_pylist(), strict=True))
    assert set(reasons) >= {bad[0], bad[1]}
    assert sorted(reason for reason in reasons.values() if not reason.startswith("the row")) == [
        "customer is none of " + ", ".join(f"c{i}" for i in range(60)),
        "product is null",
        "quantity is below 1",
    ]
    assert rows(warehouse.table("sink")) == star(good)[0]
