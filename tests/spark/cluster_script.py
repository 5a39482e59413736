"""Run by test_cluster in a process of its own: two executors, workers that are killed, tasks that fail once."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import semistream.spark.build as spark_build
from semistream.joins import MeshJoin
from semistream.joins.base import Results
from semistream.relation import Relation
from semistream.spark import build_relation, join

ROWS = 3000


def die_once(marker: str) -> None:
    """Kill this Python worker, the first time anyone asks for it."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def killed_once(marker: str) -> type[MeshJoin]:
    """An operator whose worker is killed with the first results of its task already out."""

    class KilledOnce(MeshJoin):
        name = "killed once"

        def _flush(self) -> Results:
            for batch in super()._flush():
                yield batch
                die_once(marker)

    return KilledOnce


def build_with_a_killed_writer(df: Any, folder: Path) -> Relation:
    """Build while one writer is killed after it has written all its pages, and before Spark knows."""
    marker = str(folder / "writer-killed")

    def write(plan: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = list(spark_build.write_part(plan, batches))
        if written:
            die_once(marker)
        yield from written

    spark_build._write = write
    return build_relation(df, folder / "r", key="id", page_bytes=1024, partitions=4)


def main(folder: Path) -> dict[str, Any]:
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(ROWS).selectExpr("id", "id * 10 AS v")
    relation = build_with_a_killed_writer(rows, folder)
    stream = spark.range(0, 2 * ROWS, 1, 4)
    report: dict[str, Any] = {
        "writer_killed": (folder / "writer-killed").exists(),
        "data_files": len(list((relation.path / "data").iterdir())),
        "files_of_version": len(relation.manifest.files),
        "verified_rows": relation.verify().rows,
    }
    for route in ("none", "range"):
        marker = str(folder / f"killed-{route}")
        kind = killed_once(marker)
        joined = join(stream, relation, on="id", how="left", memory="100kB", route=route, operator=kind)
        found = sorted((row["id"], row["v"]) for row in joined.collect())
        report[route] = {
            "killed": Path(marker).exists(),
            "exact": found == [(i, i * 10 if i < ROWS else None) for i in range(2 * ROWS)],
        }
    report["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    spark.stop()
    return report


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201 (the test reads it)
