"""The examples run as in their READMEs, and their tables equal DuckDB's."""

from __future__ import annotations

import importlib.util
import shutil
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pyarrow as pa
import pytest

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDERS = "order_id, product_id, customer, store_id, quantity, ordered_at"


class Example:
    """A copy of an example's folder, with its data made."""

    def __init__(self, name: str, folder: Path, spark: Any) -> None:
        self.folder, self.file = folder / name, folder / name / f"{name}.yaml"
        shutil.copytree(EXAMPLES / name, self.folder, ignore=shutil.ignore_patterns("data", "warehouse", "checkpoint"))
        self.script = load(self.folder / "make_data.py")
        self.script.make(self.folder)
        self._spark = spark

    def run(self) -> Counter[str]:
        """Run the pipeline once; gives the rows by outcome, which add up."""
        from semistream.spark.pipelines.pipeline import Pipeline

        reports: list[Any] = []
        Pipeline.from_yaml(self.file).run(self._spark, once=True, watch=reports.append)
        total: Counter[str] = Counter()
        for report in reports:
            assert sum(report.outcomes.values()) == report.rows_in
            total.update(report.outcomes)
        return +total

    def delta(self, name: str) -> pa.Table:
        from deltalake import DeltaTable

        return pa.table(DeltaTable(str(self.folder / "warehouse" / name)).to_pyarrow_table())


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(query: str, **tables: pa.Table) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        return Counter(connection.sql(query).fetchall())


def test_orders(tmp_path: Path, spark: Any) -> None:
    example = Example("orders", tmp_path, spark)
    first = example.run()
    example.script.send_late_products(example.folder)
    second = example.run()
    make = example.script
    tables = {
        "o": pa.concat_tables(make.orders(number) for number in range(make.FILES)),
        "p": make.products(0, make.PRODUCTS + make.LATE),
        "c": make.customers(),
        "s": make.stores(),
        "sink": example.delta("orders"),
        "unmatched": example.delta("unmatched"),
    }
    star = (
        "FROM o JOIN p ON o.product_id = p.id LEFT JOIN c ON o.customer = c.code {} JOIN s ON o.store_id = s.id "
        "WHERE quantity > 0"
    )
    found = rows(f"SELECT {ORDERS}, sku, category, price, segment, country, city FROM sink", **tables)
    assert found == rows(f"SELECT o.*, sku, category, price, segment, country, city {star.format('')}", **tables)
    assert rows("SELECT order_id FROM unmatched", **tables) == rows(f"SELECT order_id {star.format('ANTI')}", **tables)
    keys = rows("SELECT DISTINCT customer, customer_key FROM sink", **tables)
    assert sorted(number for _, number in keys) == list(range(1, len({customer for customer, _ in keys}) + 1))
    assert example.delta("quarantine").num_rows == first["invalid"] == make.FILES * make.ORDERS_PER_FILE // 100
    assert first["pending"] == second.total() > 0
    assert second["pending"] == 0


def test_dedup(tmp_path: Path, spark: Any) -> None:
    example = Example("dedup", tmp_path, spark)
    outcomes = example.run()
    sent = f"read_json('{example.folder}/data/events/*.json', columns={{event_id: 'VARCHAR', device: 'VARCHAR', "
    sent += "reading: 'DOUBLE', 'at': 'TIMESTAMPTZ'})"
    written = f"read_parquet('{example.folder}/warehouse/events/**/*.parquet', hive_partitioning = true)"
    once = f'SELECT DISTINCT *, "at"::DATE, round(reading * 1.8 + 32, 1) FROM {sent} WHERE reading < 100'
    assert rows(f'SELECT event_id, device, reading, "at", day, fahrenheit FROM {written}') == rows(once)
    ((all_sent, invalid),) = rows(f"SELECT count(*), count(*) FILTER (reading > 100) FROM {sent}")
    assert (outcomes.total(), outcomes["invalid"]) == (all_sent, invalid)
    assert outcomes["joined"] == len(rows(once))


def test_snapshot_changes(tmp_path: Path, spark: Any) -> None:
    example = Example("snapshot_changes", tmp_path, spark)
    example.run()
    days = [f"read_csv('{file}', types={{'credit': 'DECIMAL(10,2)'}})" for file in sorted((example.folder / "data" / "customers").iterdir())]  # fmt: skip # noqa: E501
    expected: Counter[tuple[Any, ...]] = Counter()
    for before, after in zip([f"(FROM {days[0]} LIMIT 0)", *days], days, strict=False):
        for kind, query in {
            "inserted": f"FROM {after} AS a ANTI JOIN {before} AS b USING (code)",
            "deleted": f"FROM {before} AS b ANTI JOIN {after} AS a USING (code)",
            "updated": f"FROM (FROM {after} EXCEPT FROM {before}) AS a SEMI JOIN {before} AS b USING (code)",
        }.items():
            expected.update(rows(f"SELECT *, '{kind}' {query}"))
    assert {kind for *_, kind in expected} == {"inserted", "deleted", "updated"}
    changes = example.delta("customer_changes")
    assert rows("SELECT code, name, segment, credit, change FROM changes", changes=changes) == expected


def test_the_demo_runs_the_orders_example() -> None:
    demo = EXAMPLES.parent / "src" / "semistream" / "cli" / "demo" / "orders.yaml"
    assert demo.read_text() == (EXAMPLES / "orders" / "orders.yaml").read_text()


def test_validate_explain_and_the_run_name_the_same_operators(tmp_path: Path, spark: Any) -> None:
    from semistream.pipelines.spec.yaml_file import read_spec
    from semistream.spark.planning.explain import explain_pipeline
    from semistream.spark.planning.validate import dry_plan, validate_pipeline

    for name in ("orders", "dedup", "snapshot_changes"):
        example = Example(name, tmp_path, spark)
        spec = read_spec(example.file)
        for has_run in (False, True):
            if has_run:
                example.run()
            validated = [each["operator"] for each in validate_pipeline(example.file).relations]
            explained = explain_pipeline(spec, slots=1)
            assert [step.operator for step in explained.steps] == validated
            predicted = [explained.worker(i) for i in range(len(validated))]
            assert all(each is not None for each in predicted) or not has_run
            assert all(
                each is None or each.choice.operator == own for each, own in zip(predicted, validated, strict=True)
            )
            with dry_plan(spec) as plan:
                opened = [step.plan.join.open_operator(step.relation) for step in plan.steps]
                for operator in opened:
                    operator.close()
            assert [operator.name for operator in opened] == validated
