"""A small warehouse for pipelines: orders in files, products and customers as relations, and the expected tables."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

from semistream.relation import Relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from semistream.pipelines.batch.batch_report import BatchReport

SCHEMA = {"id": "bigint", "product": "bigint", "customer": "string", "quantity": "int", "amount": "double"}
PRODUCTS, CUSTOMERS = 400, 60


def products() -> pa.Table:
    """Products 0, 2, 4 ...: half of the ordered ones."""
    ids = np.arange(0, PRODUCTS, 2)
    return pa.table({"id": ids, "name": [f"product {i}" for i in ids], "price": ids / 4})


def customers() -> pa.Table:
    """All customers but one in ten."""
    codes = [f"c{i}" for i in range(CUSTOMERS) if i % 10]
    return pa.table({"code": codes, "country": [("DE", "GR", "PK")[i % 3] for i in range(len(codes))]})


def orders(rows: int, seed: int = 0, first: int = 0) -> pa.Table:
    """Orders with distinct ids from ``first`` on."""
    generator = np.random.default_rng(seed)
    return pa.table(
        {
            "id": np.arange(first, first + rows),
            "product": generator.integers(0, PRODUCTS, rows),
            "customer": [f"c{i}" for i in generator.integers(0, CUSTOMERS, rows)],
            "quantity": pa.array(generator.integers(1, 9, rows), pa.int32()),
            "amount": np.round(generator.random(rows) * 100, 2),
        }
    )


_APART_NS = 10_000_000


def put(table: pa.Table, path: Path, format: str = "parquet") -> None:
    """A file that comes whole into a folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f"_{path.name}")
    if format == "parquet":
        pq.write_table(table, hidden)
    elif format == "json":
        hidden.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        names = table.column_names
        lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in table.to_pylist())]
        hidden.write_text("\n".join(lines) + "\n")
    after = max((file.stat().st_mtime_ns for file in path.parent.iterdir()), default=0)
    os.utime(hidden, ns=(after + _APART_NS, after + _APART_NS))  # Spark takes files of one moment in any order
    hidden.rename(path)


def read_table(path: Path) -> pa.Table:
    """The rows of a Delta table or a folder of Parquet files, as others read it; none if it is not there yet."""
    log = path / "_delta_log"
    if any(log.glob("*.json")):
        return pa.table(DeltaTable(str(path)).to_pyarrow_table())
    if log.exists() or not path.exists():
        return pa.table({})
    return ds.dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=False).to_table()


class Warehouse:
    """A folder with a source, relations, tables and a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "orders").mkdir(parents=True)
        Relation.build(products(), folder / "products", key="id", page_bytes=2048)
        Relation.build(customers(), folder / "customers", key="code", page_bytes=2048)

    def spec(self, *steps: dict[str, Any], format: str = "delta", **changes: Any) -> dict[str, Any]:
        """A pipeline over the orders; by default both joins."""
        source = {"format": "parquet", "path": str(self.folder / "orders"), "schema": SCHEMA}
        joins = [
            {"join": {"relation": str(self.folder / "products"), "on": {"product": "id"}}},
            {"join": {"relation": str(self.folder / "customers"), "on": {"customer": "code"}}},
        ]
        return {
            "name": "orders",
            "source": {**source, **changes.pop("source", {})},
            "steps": list(steps) or joins,
            **{
                name: {"format": format, "path": str(self.folder / "tables" / name)}
                for name in ("sink", "unmatched", "quarantine")
            },
            "checkpoint": str(self.folder / "checkpoint"),
            "memory": "32MB",
            "every": "100ms",
            **changes,
        }

    def put(self, table: pa.Table, name: str, format: str = "parquet") -> None:
        """A file of the source."""
        put(table, self.folder / "orders" / name, format)

    def table(self, name: str) -> pa.Table:
        """The rows of a table, as others read it."""
        return read_table(self.folder / "tables" / name)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of the file of metrics."""
        return [json.loads(line) for line in (self.folder / "checkpoint" / "metrics.jsonl").read_text().splitlines()]


def run(spark: SparkSession, spec: dict[str, Any]) -> list[BatchReport]:
    """Run a pipeline once; gives its batches."""
    from semistream.spark.pipelines.pipeline import Pipeline

    reports: list[BatchReport] = []
    Pipeline.from_dict(spec).run(spark, once=True, watch=reports.append)
    return reports


def star(stream: pa.Table) -> tuple[Counter[Any], Counter[Any]]:
    """Return DuckDB's result of the two joins: the joined rows, and (id, where) of the unmatched ones."""
    with duckdb.connect() as connection:
        connection.register("s", stream)
        connection.register("p", products())
        connection.register("c", customers())
        joined = connection.sql(
            "SELECT s.*, p.name, p.price, c.country FROM s JOIN p ON s.product = p.id JOIN c ON s.customer = c.code"
        )
        unmatched = connection.sql(
            "SELECT s.id, 'products' FROM s ANTI JOIN p ON s.product = p.id UNION ALL SELECT s.id, 'customers' FROM s "
            "SEMI JOIN p ON s.product = p.id ANTI JOIN c ON s.customer = c.code"
        )
        return Counter(joined.fetchall()), Counter(unmatched.fetchall())


def rows(table: pa.Table, *names: str) -> Counter[Any]:
    """The rows of some columns, counted."""
    return Counter(zip(*(table.column(name).to_pylist() for name in names or table.column_names), strict=True))
