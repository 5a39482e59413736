"""spark: semistream's join against Spark's own stream-static join, as streaming queries on two local cores.

Both read the same folder of Parquet files, one file per micro-batch, into the noop sink. semistream gets 10 % of R as
memory, half of it in each of the two Python workers. Spark's own join is a sort-merge join with R as Parquet, because
R is too large to broadcast. Rates are rows of S per second of the whole execution of a micro-batch, as reported by
Spark.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.harness.local_spark import CORES, start_spark
from benchmarks.harness.report import Report
from benchmarks.harness.workload import batch_rows, relation, relation_parquet, relation_rows, stream_batches
from semistream.spark import join

SETTINGS = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": str(4 * CORES),
}
WORKER_MEMORY = "5%"
REQUIRED = 10.0


@dataclass(frozen=True)
class Effort:
    """Number of micro-batches of a query: for the warm-up, and counted."""

    cold: int
    counted: int

    @property
    def batches(self) -> int:
        return self.cold + self.counted


@dataclass(frozen=True)
class Size:
    """An R of ``times`` the usual size. Spark's own join is slower with a larger R, so it gets fewer micro-batches."""

    times: int
    ours: Effort
    sparks: Effort


SIZES = (
    Size(1, ours=Effort(8, 10), sparks=Effort(2, 4)),  # the JVM is cold here, and needs about ten seconds of each join
    Size(2, ours=Effort(4, 10), sparks=Effort(1, 3)),
    Size(4, ours=Effort(4, 10), sparks=Effort(1, 2)),
)


def run(scale: float, folder: Path) -> Report:
    rows, batch = relation_rows(scale), batch_rows(scale)
    sizes = ", ".join(f"{size.times * rows:,}" for size in SIZES)
    setup = f"R {sizes} x 120 B, S Zipf(1) in micro-batches of {batch:,}, local[{CORES}], 10 % of R as memory in all"
    report = Report("spark", scale, setup)
    spark = start_spark(SETTINGS)
    ratios = [_measure(report, spark, folder, size, size.times * rows, batch) for size in SIZES]
    spark.stop()
    for route, by_size in zip(("none", "range"), zip(*ratios, strict=True), strict=True):
        grows = "grows" if all(before < after for before, after in pairwise(by_size)) else "does not always grow"
        over = ", ".join(f"{ratio:.1f}" for ratio in by_size)
        report.remark(f"route {route}: {over} times Spark's own join for R of {sizes} rows; the ratio {grows} with R")
    return report


def _measure(
    report: Report, spark: SparkSession, folder: Path, size: Size, rows: int, batch: int
) -> tuple[float, float]:
    """Return our rate over Spark's for one R, with ``route="none"`` and ``route="range"``."""
    r, static = relation(folder, rows), spark.read.parquet(str(relation_parquet(folder, rows)))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        files = write_stream(Path(scratch), rows, batch, max(size.ours.batches, size.sparks.batches))

        def measure(name: str, query: Callable[[DataFrame], DataFrame], effort: Effort) -> float:
            source = link_files(files[: effort.batches], Path(scratch) / name)
            return report.add(f"{name}, R {rows:,}", _rates(spark, query, source)[effort.cold :]).median

        def ours(s: DataFrame, route: str) -> DataFrame:
            return join(s, r, on="key", memory=WORKER_MEMORY, route=route)

        plain = measure("semistream", lambda s: ours(s, "none"), size.ours)
        routed = measure("semistream, route range", lambda s: ours(s, "range"), size.ours)
        theirs = measure("Spark's stream-static join", lambda s: s.join(static, "key"), size.sparks)
    report.require(f"R {rows:,}: semistream over Spark's own join", REQUIRED, plain / theirs)
    report.require(f"R {rows:,}: semistream, route range, over Spark's own join", REQUIRED, routed / theirs)
    return plain / theirs, routed / theirs


def write_stream(folder: Path, keys: int, rows: int, batches: int) -> list[Path]:
    """Write one file per micro-batch, with one row group per core, so that every core reads one."""
    files = [folder / f"{number:03d}.parquet" for number in range(batches)]
    for file, batch in zip(files, stream_batches(keys, rows, batches), strict=True):
        pq.write_table(pa.Table.from_batches([batch]), file, row_group_size=-(-rows // CORES))
    return files


def link_files(files: list[Path], folder: Path) -> Path:
    """Link the files to a new folder, as a finite stream."""
    folder.mkdir(parents=True)
    for file in files:
        (folder / file.name).hardlink_to(file)
    return folder


def _rates(spark: SparkSession, query: Callable[[DataFrame], DataFrame], source: Path) -> list[float]:
    """Run a query, and return rows per second of its micro-batches, one per file."""
    stream = spark.readStream.schema("key long, seq long").option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = query(stream).writeStream.format("noop").option("checkpointLocation", f"{source}-checkpoint")
    started = writer.trigger(availableNow=True).start()
    started.awaitTermination()
    return [rate for rate, _ in batch_rates(started)]


def batch_rates(query: StreamingQuery) -> list[tuple[float, float]]:
    """Return rows per second and seconds of the whole execution of each micro-batch of a finished query."""
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    seconds = [batch["durationMs"]["triggerExecution"] / 1000 for batch in batches]
    return [(batch["numInputRows"] / taken, taken) for batch, taken in zip(batches, seconds, strict=True)]
