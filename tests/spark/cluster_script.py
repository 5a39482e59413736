"""Run by test_cluster in a process of its own: a master and two workers, killed Python workers, and a pipeline."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

import semistream.spark.relation_builder as spark_build
from semistream import MeshJoin
from semistream.joins.loop import Results
from semistream.relation import Relation
from semistream.spark import build_relation, join
from semistream.spark.pipelines.pipeline import Pipeline
from tests.spark.pipelines.warehouse import Warehouse, orders, rows, star
from tests.spark.quick_jvm import QUICK_START

ROWS = 3000
ORDERS = 600
_START_S = 180.0


@contextmanager
def daemon(folder: Path, kind: str, *words: str) -> Iterator[Path]:
    """A process of Spark's standalone mode, from the pip package; gives the file that it logs to."""
    home = Path(pyspark.__file__).parent
    log = folder / f"{kind}-{len(list(folder.glob('*.log')))}.log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
    }
    name = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
    command = [
        str(home / "bin" / "spark-class"),
        name,
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--webui-port",
        "0",
        *words,
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=folder)
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


def wait_for(log: Path, pattern: str) -> str:
    """Return the text that a process logs when it is ready."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if found := re.search(pattern, log.read_text()):
            return found[0]
        time.sleep(0.1)  # another process's start: there is nothing to wait on
    raise TimeoutError(log.read_text()[-2000:])


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers with a core each; gives the master's address."""
    folder.mkdir()
    with ExitStack() as running:
        master = wait_for(running.enter_context(daemon(folder, "Master")), r"spark://[\d.]+:\d+")
        place = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), master]
        for worker in [running.enter_context(daemon(folder, "Worker", *place)) for _ in range(2)]:
            wait_for(worker, "Successfully registered with master")
        yield master


def run_pipeline(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """A star schema with routing by key range, a batch for each of two files, against DuckDB's joins."""
    warehouse = Warehouse(folder)
    stream = orders(ORDERS)
    for number in range(2):
        warehouse.put(stream.slice(number * ORDERS // 2, ORDERS // 2), f"{number}.parquet")
    reports: list[Any] = []
    spec = warehouse.spec(format="parquet", route="range", source={"files_per_batch": 1})
    Pipeline.from_dict(spec).run(spark, once=True, watch=reports.append)
    joined, unmatched = star(stream)
    return {
        "rows": [report.rows_in for report in reports],
        "files": len(list((folder / "tables" / "sink").glob("*.parquet"))),
        "joined": rows(warehouse.table("sink")) == joined,
        "unmatched": rows(warehouse.table("unmatched"), "id", "stopped_at") == unmatched,
    }


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

        def drain(self) -> Results:
            for batch in super().drain():
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

    spark_build.write_part = write
    return build_relation(df, folder / "r", key="id", page_bytes=1024, partitions=4)


def main(folder: Path) -> dict[str, Any]:
    with cluster(folder / "cluster") as master:
        report = run_all(master, folder)
    kernels = list((folder / "cache").rglob("kernels"))
    compiled = [file.name for cache in kernels for file in cache.glob("*/*") if file.parent.name != "locks"]
    return {**report, "executors_caches": len(kernels), "compiled_by_executors": compiled}


def run_all(master: str, folder: Path) -> dict[str, Any]:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.cores.max", "2")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.XDG_CACHE_HOME", str(folder / "cache"))  # nothing is compiled there yet
        .config("spark.executor.extraJavaOptions", QUICK_START)
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.sql.session.timeZone", "UTC")
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
    report["pipeline"] = run_pipeline(spark, folder / "warehouse")
    report["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    spark.stop()
    return report


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201 (the test reads it)
