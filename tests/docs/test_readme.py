"""The examples in the README run as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

README = Path(__file__).parents[2].joinpath("README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PIPELINES = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


def test_the_readme_has_its_two_examples() -> None:
    assert ["pyspark" in block for block in BLOCKS] == [False, True]


def test_the_embedded_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(BLOCKS[0], names)
    stats = names["joined"].stats  # type: ignore[attr-defined]
    assert stats.rows_in == 50_000
    assert 0 < stats.matched < 50_000
    assert stats.peak_bytes <= 400_000


@pytest.mark.spark
def test_the_spark_example(tmp_path: Path, spark) -> None:
    (tmp_path / "orders").mkdir()
    orders = pa.table({"product": [7, 200_000], "amount": [1.0, 2.0]})
    pq.write_table(orders, tmp_path / "orders" / "1.parquet")
    names: dict[str, object] = {}
    # A running JVM does not follow chdir: its paths must be absolute.
    exec(re.sub(r'"(products|orders|enriched|checkpoint)"', rf'"{tmp_path}/\1"', BLOCKS[1]), names)
    (query,) = spark.streams.active
    query.processAllAvailable()
    query.stop()
    rows = sorted(spark.read.parquet(f"{tmp_path}/enriched").collect())
    assert [tuple(row) for row in rows] == [(7, 1.0, 3.5), (200_000, 2.0, None)]


@pytest.mark.spark
def test_the_pipeline(tmp_path: Path, spark) -> None:
    from deltalake import DeltaTable

    from semistream import Relation
    from semistream.spark.pipelines.pipeline import Pipeline

    (text,) = PIPELINES
    (tmp_path / "orders.yaml").write_text(text)
    (tmp_path / "orders").mkdir()
    orders = [(1, 7, "ann", 2.5), (2, 9, "bob", 1.0), (3, 7, "ann", -1.0), (4, 7, "cy", 0.0)]
    lines = [json.dumps(dict(zip(("order", "product", "customer", "amount"), row, strict=True))) for row in orders]
    (tmp_path / "orders" / "1.json").write_text("\n".join(lines))
    Relation.build(pa.table({"id": [7], "name": ["kettle"]}), tmp_path / "products", key="id")
    reports: list[Any] = []
    Pipeline.from_yaml(tmp_path / "orders.yaml").run(spark, once=True, watch=reports.append)
    assert {name: rows for name, rows in reports[0].outcomes.items() if rows} == {
        "joined": 2,
        "pending": 1,
        "invalid": 1,
    }
    rows = DeltaTable(str(tmp_path / "warehouse" / "orders")).to_pyarrow_table().sort_by("order").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, 7, "ann", 2.5, "kettle", 1), (4, 7, "cy", 0.0, "kettle", 2)]
