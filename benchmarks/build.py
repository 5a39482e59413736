"""build: Relation.build against DuckDB's sorted COPY to Parquet, with the same memory."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import duckdb

from benchmarks.harness.report import Report
from benchmarks.harness.workload import relation_reader, relation_rows
from semistream import Relation

_MEMORY = "512MB"
_REPEAT = 2


def run(scale: float, folder: Path) -> Report:
    rows = relation_rows(scale)
    source = folder / f"source-{rows}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    if not source.exists():
        with duckdb.connect() as connection:
            connection.register("batches", relation_reader(rows))
            connection.execute(f"COPY (SELECT * FROM batches) TO '{source}' (FORMAT parquet)")
    report = Report("build", scale, f"{rows:,} rows x 120 B in random order, from Parquet, memory {_MEMORY}")
    ours = report.add("Relation.build", [rows / _build(source, folder) for _ in range(_REPEAT)])
    duck = report.add("DuckDB COPY (... ORDER BY key)", [rows / _copy(source, folder) for _ in range(_REPEAT)])
    report.require("Relation.build over DuckDB's COPY", 0.5, ours.median / duck.median)
    return report


def _build(source: Path, folder: Path) -> float:
    path = folder / "built"
    shutil.rmtree(path, ignore_errors=True)
    start = time.perf_counter()
    Relation.build(source, path, key="key", memory=_MEMORY)
    taken = time.perf_counter() - start
    shutil.rmtree(path)
    return taken


def _copy(source: Path, folder: Path) -> float:
    target = folder / "copied.parquet"
    config = {"memory_limit": _MEMORY, "temp_directory": str(folder / "duckdb-tmp"), "preserve_insertion_order": False}
    with duckdb.connect(config=config) as connection:
        start = time.perf_counter()
        connection.execute(f"COPY (SELECT * FROM '{source}' ORDER BY key) TO '{target}' (FORMAT parquet)")
        taken = time.perf_counter() - start
    target.unlink()
    return taken
