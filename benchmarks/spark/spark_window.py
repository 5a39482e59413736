"""window on Spark: window_join against Spark's own stream-stream join, as streaming queries on two local cores.

Both read the same two folders of Parquet files, one file of each per micro-batch, into the noop sink, with the same
watermarks and windows. Rates are rows of both streams per second of the whole execution of a micro-batch, as reported
by Spark, without the first micro-batches. State is the median size of the state store: the snapshot and the log of
window_join, and the size that Spark reports for its own join. Memory is a share of the rows in the two windows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.harness.local_spark import CORES, start_spark
from benchmarks.harness.report import Report
from semistream.budget import format_bytes
from semistream.datasets import ZipfPair
from semistream.spark import window_join, window_metrics

FULL_BATCH = 200_000  # rows of each stream in a micro-batch
SHARES = (1.0, 0.5, 0.25, 0.1)
REQUIRED_RATE = 0.2  # million rows/s
REQUIRED_KEPT = 0.9  # share of the results, with half of the memory, Zipf 1
_COLD = 2  # first micro-batches of a query, not counted
_OWN = "own"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_PROVIDERS = (("in memory", _IN_MEMORY), ("RocksDB", _ROCKSDB))


@dataclass(frozen=True)
class Workload:
    """Two streams of one row per millisecond, ``batch`` rows each per micro-batch, and windows of ``window`` rows."""

    name: str
    exponent: float
    domain: int
    window: int
    batch: int
    batches: int

    def write(self, folder: Path) -> None:
        pair = ZipfPair(self.exponent, self.domain, correlation="correlated", seed=3)
        for side in ("left", "right"):
            (folder / side).mkdir(parents=True)
        for number in range(self.batches):
            instants = np.arange(number * self.batch, (number + 1) * self.batch)
            at = pa.array((instants + 1_700_000_000_000) * 1000, pa.timestamp("us", "UTC"))
            for side, keys in zip(("left", "right"), pair.keys(self.batch), strict=True):
                table = pa.table({"key": keys, "at": at, side: instants})
                # One row group per core, so that every core reads one.
                pq.write_table(table, folder / side / f"{number:03d}.parquet", row_group_size=-(-self.batch // CORES))


@dataclass(frozen=True)
class Outcome:
    """Outcome of a query: rows/s of its micro-batches, number of results, and median bytes of its state."""

    rates: list[float]
    results: int
    state_bytes: int


def measure(report: Report, scale: float, folder: Path) -> None:
    """Measure window_join and Spark's own join on uniform and on Zipf streams, and add both to the report."""
    rows = max(int(FULL_BATCH * scale), 2_000)
    uniform = Workload("uniform", 0.0, domain=rows, window=rows, batch=rows, batches=_COLD + 3)
    # Keys this frequent have many pairs, and thus many results, even in a small window.
    zipf = Workload(
        "Zipf 1", 1.0, domain=10 * rows, window=max(rows // 400, 200), batch=max(rows // 8, 2_000), batches=_COLD + 3
    )
    spark = start_spark({"spark.sql.shuffle.partitions": str(CORES)})
    try:
        for workload in (replace(uniform, name="warm-up"), uniform, zipf):
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                workload.write(Path(scratch))
                if workload.name == "warm-up":  # lets the JVM compile hot code
                    _run(spark, _ours(workload, 1.0), Path(scratch), "ours", _ROCKSDB)
                else:
                    _measure_workload(report, spark, Path(scratch), workload)
    finally:
        spark.stop()


def _measure_workload(report: Report, spark: SparkSession, folder: Path, workload: Workload) -> None:
    about = f"{workload.name} over {workload.domain:,} keys, window {workload.window:,}"
    kept: dict[float, int] = {}
    for share in SHARES:
        outcome = _run(spark, _ours(workload, share), folder, f"ours-{share}", _ROCKSDB)
        kept[share] = outcome.results
        measured = report.add(
            f"window_join, memory {100 * share:.0f} %; {about}",
            outcome.rates,
            note=f"{outcome.results:,} results, state {format_bytes(outcome.state_bytes)}",
        )
        if workload.exponent == 0:
            what = f"window_join, memory {100 * share:.0f} %, {workload.name}, million rows/s"
            report.require(what, REQUIRED_RATE, measured.median / 1e6)
    exact = 0
    for name, provider in _PROVIDERS[: 1 if workload.exponent else None]:  # RocksDB takes minutes for a hot key
        outcome = _run(spark, partial(_sparks_own, workload), folder, f"own-{name}", provider)
        exact = outcome.results
        report.add(
            f"Spark's stream-stream join, {name}; {about}",
            outcome.rates,
            note=f"{outcome.results:,} results, state {format_bytes(outcome.state_bytes)}",
        )
    shown = ", ".join(f"{100 * found / exact:.1f} % with {100 * share:.0f} %" for share, found in kept.items())
    report.remark(f"{workload.name}: results kept, by memory as a share of the windows: {shown}")
    if workload.exponent == 1:
        report.require("share of the results with half of the memory, Zipf 1", REQUIRED_KEPT, kept[0.5] / exact)


def _ours(workload: Workload, share: float) -> Callable[[DataFrame, DataFrame], DataFrame]:
    memory, window = int(share * 2 * workload.window), f"{workload.window} ms"
    return partial(window_join, on="key", window=window, memory=memory)


def _sparks_own(workload: Workload, left: DataFrame, right: DataFrame) -> DataFrame:
    """Join by Spark's inner join with the same windows."""
    l, r = left.alias("l"), right.alias("r")  # noqa: E741
    window = f"INTERVAL '{workload.window} milliseconds'"
    near = f"l.at < r.at + {window} AND r.at < l.at + {window}"
    joined = l.join(r, on=sf.expr(f"l.key = r.key AND {near}")).select("l.key", "l.at", "left", "r.at", "right")
    return joined.observe(_OWN, sf.count(sf.lit(1)).alias("results"))


def _run(
    spark: SparkSession,
    query: Callable[[DataFrame, DataFrame], DataFrame],
    folder: Path,
    name: str,
    provider: str,
) -> Outcome:
    spark.conf.set(_PROVIDER, provider)
    left, right = (
        spark.readStream.schema(f"key long, at timestamp, {side} long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / side))
        .withWatermark("at", "0 seconds")
        for side in ("left", "right")
    )
    writer = query(left, right).writeStream.format("noop").option("checkpointLocation", str(folder / name))
    started = writer.trigger(availableNow=True).start()
    started.awaitTermination()
    reports = [each for each in started.recentProgress if "addBatch" in each.durationMs]
    counted = [each for each in reports if each.numInputRows][_COLD:]
    rates = [each.numInputRows / (each.durationMs["triggerExecution"] / 1000) for each in counted]
    metrics = [found for each in reports if (found := window_metrics(each))]
    if metrics:
        return Outcome(
            rates, sum(each.results for each in metrics), int(median(m.state_bytes for m in metrics[_COLD:]))
        )
    results = sum(each.observedMetrics[_OWN]["results"] for each in reports)
    states = [sum(operator.memoryUsedBytes for operator in each.stateOperators) for each in reports]
    return Outcome(rates, results, int(median(states[_COLD:])))
