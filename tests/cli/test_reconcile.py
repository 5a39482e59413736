"""``semistream reconcile`` of a pipeline that has shed rows, and the ``status`` before it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
import yaml

from semistream.pipelines.ledger.ledger import Ledger
from tests.cli.conftest import run
from tests.cli.test_pipeline import content, entries, folder, refused
from tests.spark.pipelines.overloads import slow_service

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

__all__ = ["folder"]

SLOW_S = 0.2
"""Assumed cost of a row: about 60 of the source's 200 rows are joined."""


@pytest.fixture
def file(folder: Path) -> Path:
    """The pipeline with a goal, and the same source."""
    whole = content()
    del whole["source"]["files_per_batch"]
    whole["steps"] = whole["steps"][1:]
    whole["overload"] = {"latency": "30s", "archive": {"format": "parquet", "path": "tables/archive"}}
    path = folder / "overload.yaml"
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    return path


def found(folder: Path, name: str) -> Counter[Any]:
    """The orders of a table."""
    table = ds.dataset(folder / "tables" / name, format="parquet").to_table()
    return Counter(zip(*(table.column(column).to_pylist() for column in ("id", "product")), strict=True))


def expected(folder: Path) -> tuple[Counter[Any], Counter[Any]]:
    """Return the joined and the unmatched rows, computed by DuckDB."""
    orders = f"read_parquet('{folder}/orders/*.parquet')"
    joined = duckdb.sql(f"SELECT id, product FROM {orders} WHERE product IN (FROM range(50))").fetchall()
    others = duckdb.sql(f"SELECT id, product FROM {orders} WHERE product NOT IN (FROM range(50))").fetchall()
    return Counter(joined), Counter(others)


def test_shed_rows_are_reported_until_they_are_repaired(folder: Path, file: Path, spark: Any) -> None:
    with slow_service(SLOW_S):
        report = run("run", file, "--once", "--json").json
    shed = report["outcomes"]["shed"]
    assert 130 <= shed < 200
    assert sum(report["outcomes"].values()) == report["rows_in"] == 200

    state = run("status", file, "--json").json
    missing = state["missing"]
    assert (missing["rows"], missing["results_low"], missing["results_high"]) == (shed, 0, shed), "keys are unique"
    assert missing["since"] == pytest.approx(min(path.stat().st_mtime for path in (folder / "orders").iterdir()), abs=1)
    line = state["recent"][-1]["overload"]
    assert line["shed_share"] == pytest.approx(shed / 200)
    assert line["archived_rows"] == shed
    assert line["p99_s"] >= line["p95_s"] >= line["p50_s"] > 0
    assert line["archived_oldest_s"] > line["p99_s"] - 0.5, "as old as rows of the same files, but for rounding"
    assert line["goal_s"] == 30
    assert json.loads((folder / "checkpoint" / "metrics.jsonl").read_text())["overload"] == line
    text = run("status", file).out
    for words in (f"shed rows to repair      {shed}", f"0 to {shed}", "oldest of them arrived", "goal 30 s", "p95"):
        assert words in text, text

    repaired = run("reconcile", file, "--json")
    assert repaired.code == 0
    assert (repaired.json["batches"], repaired.json["rows_in"], repaired.json["outcomes"]["shed"]) == (1, shed, 0)
    assert (found(folder, "sink"), found(folder, "unmatched")) == expected(folder)
    assert run("status", file, "--json").json["missing"]["rows"] == 0
    assert "to repair" not in run("status", file).out

    before = {path: size for path, size in entries(folder).items() if "spark.log" not in path}
    again = run("reconcile", file)
    assert again.code == 0
    assert re.search(r"batches +0\b", again.out)
    assert {path: size for path, size in entries(folder).items() if "spark.log" not in path} == before
    assert run("reconcile", file, "--json").json["batches"] == 0


def test_text_reports_the_repair(folder: Path, file: Path, spark: Any) -> None:
    with slow_service(SLOW_S):
        run("run", file, "--once")
    shed = sum(each.rows for each in Ledger.read(folder / "checkpoint", "orders").archived)
    answer = run("reconcile", file)
    assert answer.code == 0
    assert f"{shed} in " in answer.out
    assert "joined" in answer.out


def test_a_pipeline_that_has_not_run_has_nothing_to_repair(file: Path, spark: Any) -> None:
    answer = run("reconcile", file, "--json")
    assert (answer.code, answer.json["batches"], answer.json["rows_in"]) == (0, 0, 0)


def test_what_cannot_be_repaired_is_refused_with_the_next_step(folder: Path, file: Path, spark: Any) -> None:
    assert "nowhere.yaml" in refused(run("reconcile", folder / "nowhere.yaml"))
    assert "sheds no rows: it has no `overload`" in refused(run("reconcile", folder / "p.yaml")).replace("\n", " ")
    assert run("reconcile", file, "--conf", "nonsense").code == 2
    with Ledger.open(folder / "checkpoint", "orders"):
        said = refused(run("reconcile", file)).replace("\n", " ")
    assert "already runs in process" in said
    assert "Stop it first" in said


def test_an_unfinished_batch_must_be_run_first(
    folder: Path, file: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the disk is full")

    with slow_service(SLOW_S), monkeypatch.context() as patch:
        patch.setattr("semistream.spark.pipelines.spark_workers.SparkWorkers.run_phase", fail)
        assert "the disk is full" in refused(run("run", file, "--once"))
    said = refused(run("reconcile", file)).replace("\n", " ")
    assert "batch 0 of the pipeline 'orders' is not finished. Run the pipeline first, then reconcile" in said
    run("run", file, "--once")
    assert run("reconcile", file).code == 0
    assert (found(folder, "sink"), found(folder, "unmatched")) == expected(folder)
