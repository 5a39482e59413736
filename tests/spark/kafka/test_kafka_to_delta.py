"""The example from Kafka to Delta, as it stands; Spark's own Delta reads what comes out."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from semistream.relation import Relation
from semistream.spark.kafka.connector import CONNECTOR
from semistream.spark.pipelines.pipeline import Pipeline

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]


@pytest.fixture
def example(broker, tmp_path, monkeypatch):
    """The folder of the example, with its relation built and its messages sent."""
    folder = tmp_path / "kafka_to_delta"
    shutil.copytree(ROOT / "examples" / "kafka_to_delta", folder, ignore=shutil.ignore_patterns("out"))
    monkeypatch.setenv("KAFKA_SERVERS", broker.servers)
    Relation.build(str(folder / "products.csv"), folder / "out" / "products", key="id")
    for topic in ("orders", "products"):
        lines = (folder / f"{topic}.jsonl").read_text().splitlines()
        broker.send(broker.create(topic), [(None, line) for line in lines])
    return folder


def test_the_example_runs_and_spark_reads_its_table(spark, example):
    (report,) = run(spark, example)
    assert {name: rows for name, rows in report.outcomes.items() if rows} == {"joined": 4, "pending": 1, "invalid": 3}
    expected = duckdb.sql(
        f"""
        WITH updates AS (SELECT * FROM read_json('{example}/products.jsonl')),
        known AS (
          SELECT * FROM updates UNION ALL SELECT p.* FROM '{example}/products.csv' p ANTI JOIN updates USING (id)
        )
        SELECT o.id, o.product, name, price, price * quantity AS total
        FROM read_json('{example}/orders.jsonl', ignore_errors = true, columns = {{id: 'BIGINT', product: 'BIGINT',
          quantity: 'INT'}}) o JOIN known ON product = known.id WHERE quantity > 0 ORDER BY o.id
        """
    ).fetchall()
    names = ["id", "product", "name", "price", "total"]
    table = DeltaTable(str(example / "out" / "enriched")).to_pyarrow_table()
    assert sorted(tuple(row[name] for name in names) for row in table.to_pylist()) == expected
    found = in_plain_spark(example)
    assert sorted(tuple(row[name] for name in names) for row in found["rows"]) == expected
    assert sorted(row["at"] for row in found["rows"])[0] == "2026-01-05T09:00:00.000Z"
    assert f"--packages {CONNECTOR}:{spark.version}" in found["refusal"]


def run(spark, example):
    reports = []
    Pipeline.from_yaml(example / "pipeline.yaml").run(spark, once=True, watch=reports.append)
    return reports


def in_plain_spark(example):
    """Run the example in a separate Spark; return its report."""
    paths = [ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    script = [sys.executable, "-m", "tests.spark.kafka.plain_spark_script"]
    done = subprocess.run(
        [*script, example / "out" / "enriched", example / "pipeline.yaml"],
        capture_output=True, text=True, check=False, cwd=example,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
