"""The examples in the README run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

BLOCKS = re.findall(r"```python\n(.*?)```", Path(__file__).parents[1].joinpath("README.md").read_text(), re.DOTALL)


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
