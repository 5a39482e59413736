"""Sources with too many rows: generated rows, a first backlog, workers that own a range of keys."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from semistream.datasets import Zipf
from semistream.errors import InvalidArgument
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.overload.service_times import ServiceModel
from tests.spark.pipelines.overloads import ROW_S, archive_ids, archived_rows, overloaded, reconcile, slow_service
from tests.spark.pipelines.warehouse import orders, products, rows, run, star

pytestmark = pytest.mark.spark


def test_made_up_rows_are_shed_and_repaired(spark, warehouse):
    source = {"format": "generator", "keys": 400, "rate": 600, "rows": 1200, "seed": 3}
    join = {"relation": str(warehouse.folder / "products"), "on": {"key": "id"}, "unmatched": "null"}
    spec = {**overloaded(warehouse, {"join": join}), "source": source}
    with slow_service():
        reports = run(spark, spec)
    assert [report.rows_in for report in reports] == [600, 600]
    assert all(report.outcomes["shed"] > 300 for report in reports)
    missing = reports[-1].overload.missing
    assert missing.rows == archived_rows(warehouse.folder) == sum(report.outcomes["shed"] for report in reports)
    assert (missing.results_low, missing.results_high) == (missing.rows, missing.rows), "each has one result"
    reconcile(spark, spec)
    with duckdb.connect() as connection:
        connection.register("s", pa.table(next(Zipf(1.0, 400, seed=3).batches(1200))))
        connection.register("p", products())
        whole = connection.sql("SELECT key, seq, name, price FROM s LEFT JOIN p ON key = id").fetchall()
    assert rows(warehouse.table("sink"), "key", "seq", "name", "price") == Counter(whole)
    assert (warehouse.table("archive").num_rows, archived_rows(warehouse.folder)) == (0, 0)


def test_before_costs_are_measured_only_rows_beyond_the_goal_are_shed(spark, warehouse, monkeypatch):
    monkeypatch.setattr(
        "semistream.pipelines.overload.batch_overload.expected_times", lambda *_, **__: ServiceModel(0.1, ROW_S, 1e-9)
    )
    stream = orders(380)  # 19 s, as it is thought; a batch of a lasting overload would have 12
    warehouse.put(stream, "0.parquet")
    (report,) = run(spark, overloaded(warehouse))
    assert (report.outcomes["shed"], report.remarks) == (0, ())
    more = orders(400, seed=1, first=380)  # since it was measured, these are no matter
    warehouse.put(more, "1.parquet")
    (report,) = run(spark, overloaded(warehouse))
    assert report.outcomes["shed"] == 0
    assert rows(warehouse.table("sink")) == star(pa.concat_tables([stream, more]))[0]


def test_a_backlog_that_is_shed_by_what_is_only_thought_is_remarked_on(spark, warehouse, monkeypatch):
    monkeypatch.setattr(
        "semistream.pipelines.overload.batch_overload.expected_times", lambda *_, **__: ServiceModel(0.1, ROW_S, 1e-9)
    )
    stream = orders(1000)
    warehouse.put(stream, "0.parquet")
    spec = overloaded(warehouse)
    (report,) = run(spark, spec)
    assert 350 < 1000 - report.outcomes["shed"] < 420
    (remark,) = report.remarks
    assert f"{report.outcomes['shed']} of 1,000 rows were shed before the cost of a row was measured" in remark
    assert "20 rows/s" in remark
    assert "semistream reconcile" in remark
    reconcile(spark, spec)
    assert rows(warehouse.table("sink")) == star(stream)[0]


def test_expected_times_follow_the_cost_model_of_the_joins(spark, warehouse):
    from semistream.pipelines.overload.expected_times import expected_times
    from semistream.pipelines.overload.service_times import PRIOR
    from semistream.pipelines.plan.step_plans import plan_steps
    from semistream.pipelines.spec.yaml_file import make_spec
    from semistream.spark.planning.explain import explain_pipeline

    spec = make_spec(overloaded(warehouse, route="none"))
    steps = plan_steps(spec, spec.source.arrow_schema, slots=2)
    told = explain_pipeline(spec, slots=2).rate
    expected = expected_times(steps, copies=False)
    assert expected.joined_s == pytest.approx(1 / told + 1e-6)
    copying = expected_times(steps, copies=True)
    assert 0 < copying.shed_s < expected.shed_s / 10 < expected.joined_s / 10
    assert copying.joined_s == expected.joined_s
    where = {"relation": str(warehouse.folder / "products"), "where": "s.product = r.id"}
    by_where = make_spec(overloaded(warehouse, {"join": where}))
    assert _expected(by_where).joined_s > 1e-6
    cheaper = {**where, "where": "r.price < s.amount"}
    scanned = make_spec(overloaded(warehouse, {"join": cheaper}))
    assert _expected(scanned) == PRIOR, "no model knows it"
    empty = make_spec(overloaded(warehouse, {"surrogate_key": _keys(warehouse)}))
    assert _expected(empty) == PRIOR, "nothing is known of no rows"


def _expected(spec):
    from semistream.pipelines.overload.expected_times import expected_times
    from semistream.pipelines.plan.step_plans import plan_steps

    return expected_times(plan_steps(spec, spec.source.arrow_schema, slots=2), copies=False)


@pytest.mark.parametrize(
    ("source", "format", "strategy", "copies"),
    [
        ("parquet", "delta", None, True),
        ("parquet", "delta", "sample_w", False),
        ("parquet", "parquet", None, False),
        ("json", "delta", None, False),
    ],
)
def test_files_are_expected_to_be_copied_where_they_are(
    spark, warehouse, monkeypatch, source, format, strategy, copies
):
    told = []

    def expected(steps, *, copies):
        told.append(copies)
        return ServiceModel(0.1, ROW_S, 1e-9)

    monkeypatch.setattr("semistream.pipelines.overload.batch_overload.expected_times", expected)
    spec = overloaded(warehouse, format=format, overload={"strategy": strategy} if strategy else {})
    spec["source"] = {**spec["source"], "format": source}
    for i in range(4):
        warehouse.put(orders(200, seed=i, first=200 * i), f"{i}.{source}", source)
    (report,) = run(spark, spec)
    assert told == [copies]
    assert report.outcomes["shed"] > 0
    shed = [file for each in Ledger.read(warehouse.folder / "checkpoint", "orders").archived for file in each.files]
    assert any(file.part is not None for file in shed) == copies


def _keys(warehouse):
    return {"relation": str(warehouse.folder / "keys"), "key": "id", "into": "order_key"}


def test_workers_that_own_a_range_of_keys_shed_and_repair_rows_once(spark, warehouse):
    stream = orders(700)
    for i in range(3):
        warehouse.put(stream.slice(i * 250, 250), f"{i}.parquet")
    spec = overloaded(warehouse, route="range")
    with slow_service():
        (report,) = run(spark, spec)
    shed = archive_ids(warehouse.folder)
    seen = warehouse.table("sink").column("id").to_pylist() + warehouse.table("unmatched").column("id").to_pylist()
    assert report.rows_in == 700
    assert report.outcomes["shed"] == len(shed) > 400
    assert Counter(seen + shed) == Counter(range(700)), "each row is in one table or in the archive"
    (repair,) = reconcile(spark, spec)
    assert repair.rows_in == len(shed)
    joined, unmatched = star(stream)
    assert rows(warehouse.table("sink")) == joined
    assert rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched


def test_rows_that_spark_would_have_to_send_to_the_owner_of_their_key_cannot_be_shed(spark, warehouse):
    warehouse.put(orders(10), "0.parquet")
    steps = [
        {"compute": {"half": "product div 2"}},
        {"join": {"relation": str(warehouse.folder / "products"), "on": {"half": "id"}}},
    ]
    with pytest.raises(InvalidArgument, match=r"route: range if Spark must send rows.*a replay would shed others"):
        run(spark, overloaded(warehouse, *steps, route="range"))
