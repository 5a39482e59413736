"""overload: a source at 0.5, 1, 2 and 4 times the capacity of a pipeline with a latency goal, for a minute each.

The capacity is the highest rate of the same pipeline: without a goal, in batches as large as those of a steady
overload. It is measured before and after each rate. Files arrive at a steady rate. The latency of a row is the time
from the arrival of its file until the tables show it; the worst p95 of a batch counts. When the source ends, the shed
rows are reconciled, and the sink is compared with all rows that arrived. Spark's own stream-static join reads a source
at the capacity of our pipeline; its lag is the rows that have arrived and are not yet processed.

The cost of an unneeded goal: two pipelines, one with a goal and one without, process the same files in turns, one file
per batch. It is measured in processor time, which other processes do not affect, with R in the system's page cache.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.harness.capacity import Capacity
from benchmarks.harness.file_feed import FileFeed
from benchmarks.harness.local_spark import CORES, start_spark
from benchmarks.harness.report import Report
from benchmarks.harness.running_pipeline import RunningPipeline, python_seconds
from benchmarks.harness.workload import relation, relation_parquet, relation_rows, stream_batches
from benchmarks.spark.spark_join import SETTINGS, WORKER_MEMORY
from semistream import Relation
from semistream.cli.plots import plain_axes
from semistream.pipelines.batch.batch_report import BatchReport
from semistream.spark.pipelines.pipeline import Pipeline

TIMES = (0.5, 1.0, 2.0, 4.0)
GOAL_S, SECONDS = 30, 60
OF_CAPACITY = 0.85
OF_SECONDS = 0.98  # required rate with an unneeded goal, relative to the rate without one
_COLUMNS = ("c0", "c1", "c2")
_SETTLED = 2  # first batches with rows, which warm up workers and teach the controller their speed
_STEADY_S = 0.4 * GOAL_S  # approximate duration of a batch in a steady overload
_UNUSED_ROWS, _UNUSED_COLD, _UNUSED_TURNS = 2_000_000, 3, 20


_WITH, _WITHOUT = "with a goal", "without a goal"
_PROGRESS = Console(stderr=True, soft_wrap=True, highlight=False)


@dataclass
class Load:
    """Outcome of a source at ``times`` the capacity: its batches, and the number of rows missing after reconcile.

    ``capacity`` is the average of the measurements just before and just after it.
    """

    times: float
    rows: int
    batches: list[BatchReport] = field(default_factory=list)
    missing: int = 0
    repair_s: float = 0.0
    capacity: float = 0.0

    def add(self, batch: BatchReport) -> None:
        """Add a finished batch, and print it."""
        self.batches.append(batch)
        shed = batch.outcomes["shed"] / max(batch.rows_in, 1)
        _PROGRESS.print(
            f"  {self.times:g}x, batch {batch.batch}: {batch.rows_in / 1e6:.2f} M rows in {batch.seconds:.2f} s, "
            f"{shed:.0%} shed, p95 {_p95(batch):.1f} s"
        )

    @property
    def settled(self) -> list[BatchReport]:
        """Batches of the source, without the first ones."""
        return [batch for batch in self.batches if batch.source_batch is not None and batch.rows_in][_SETTLED:]

    @property
    def p50_s(self) -> float:
        return max((b.overload.latencies.p50_s for b in self.settled if b.overload and b.overload.latencies), default=0)

    @property
    def p95_s(self) -> float:
        return max(map(_p95, self.settled), default=0.0)

    @property
    def share_shed(self) -> float:
        rows = sum(batch.rows_in for batch in self.settled)
        return sum(batch.outcomes["shed"] for batch in self.settled) / rows if rows else 0.0

    @property
    def joined_per_s(self) -> float | None:
        """Rows joined per second between the ends of the first and the last batch that shed rows; None if too few did.

        Batches in between count even if they shed nothing.
        """
        settled = self.settled
        shedding = [place for place, batch in enumerate(settled) if batch.outcomes["shed"]]
        if len(shedding) < 2:
            return None
        first, last = shedding[0], shedding[-1]
        joined = sum(batch.rows_in - batch.outcomes["shed"] for batch in settled[first + 1 : last + 1])
        return joined / (settled[last].at - settled[first].at)


def _p95(batch: BatchReport) -> float:
    told = batch.overload
    return 0.0 if told is None or told.latencies is None else told.latencies.p95_s


def run(scale: float, folder: Path) -> Report:
    rows = relation_rows(scale)
    seconds = max(SECONDS * min(scale, 1.0), GOAL_S * 2 / 3)
    setup = (
        f"R {rows:,} x 120 B, S Zipf(1) in files, local[{CORES}], 10 % of R as memory in all, a goal of {GOAL_S} s, "
        f"{seconds:.0f} s for each rate"
    )
    report = Report("overload", scale, setup)
    r, static = relation(folder, rows), relation_parquet(folder, rows)
    spark = start_spark(SETTINGS)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        base = Path(scratch).absolute()
        unused = _unused(spark, r, base / "unused", rows, scale)
        capacity = Capacity(
            spark, partial(_spec, r), base / "capacity", keys=rows, scale=scale, batch_s=_STEADY_S * seconds / SECONDS
        )
        loads = []
        now = _measured(capacity)
        for times in TIMES:
            before, load = now, _load(spark, r, base / f"{times:g}", rows, times, now * times, seconds)
            now = _measured(capacity)
            loads.append(replace(load, capacity=(before + now) / 2))
        sparks = _sparks(spark, static, base / "spark", rows, now, seconds)
    spark.stop()
    report.add("capacity", capacity.rates)
    for name, rates in unused.items():
        report.add(f"no overload, {name}", rates, unit="rows/processor s")
    medians = {name: statistics.median(rates) for name, rates in unused.items()}
    report.require(
        "rate with a goal over that without, if nothing is shed", OF_SECONDS, medians[_WITH] / medians[_WITHOUT]
    )
    for load in loads:
        _tell(report, load)
    behind = f"{sparks.lag_s[-1]:.0f} s behind after {sparks.at[-1]:.0f} s"
    report.add("Spark's own join, source at 1x", [sparks.per_s], note=behind)
    _plot(loads, sparks, folder / "overload.png")
    return report


def _measured(capacity: Capacity) -> float:
    now = capacity.measure()
    _PROGRESS.print(f"  capacity: {now / 1e6:.2f} M rows/s")
    return now


def _tell(report: Report, load: Load) -> None:
    shed = f"{load.share_shed:.0%} shed, p50 {load.p50_s:.1f} s, p95 {load.p95_s:.1f} s"
    shed += f", repaired in {load.repair_s:.0f} s" if load.share_shed else ""
    rates = [batch.rows_per_s for batch in load.settled] or [0.0]
    joined_per_s = load.joined_per_s
    if load.times > 1 and joined_per_s is None:
        shed += "; too few batches shed rows to measure the rate meanwhile"
    report.add(f"source at {load.times:g}x", rates, note=shed)
    if load.times > 1:
        report.require(f"{load.times:g}x: the goal over p95 latency", 1.0, GOAL_S / max(load.p95_s, 1e-9))
        if joined_per_s is not None:
            report.require(f"{load.times:g}x: joined rows over capacity", OF_CAPACITY, joined_per_s / load.capacity)
    elif load.times < 1:
        report.require(f"{load.times:g}x: rows not shed", 1.0, 1 - load.share_shed)
    report.require(f"{load.times:g}x: rows there after reconcile", 1.0, 1.0 if not load.missing else 0.0)


def _spec(r: Relation, source: Path, base: Path, *, disk: str = "auto", **more: Any) -> dict[str, Any]:
    schema = {"key": "bigint", "seq": "bigint"}
    join = {"relation": str(r.path.absolute()), "on": "key", "columns": list(_COLUMNS), "disk": disk}
    return {
        "name": "overload",
        "source": {"format": "parquet", "path": str(source), "schema": schema},
        "steps": [{"join": join}],
        **{name: {"path": str(base / name)} for name in ("sink", "unmatched", "quarantine")},
        "checkpoint": str(base / "checkpoint"),
        "memory": WORKER_MEMORY,
        **more,
    }


def _unused(spark: SparkSession, r: Relation, base: Path, keys: int, scale: float) -> dict[str, list[float]]:
    """Return rows per processor second of each batch, with an unneeded goal and without one, after a warm-up."""
    goal = {"overload": {"latency": f"{GOAL_S}s", "archive": {"path": str(base / _WITH / "archive")}}}
    size = max(int(_UNUSED_ROWS * scale), 50_000)
    rates: dict[str, list[float]] = {_WITHOUT: [], _WITH: []}
    with ExitStack() as stack:
        running = {}
        for name, more in ((_WITHOUT, {}), (_WITH, goal)):
            source = base / name / "source"
            spec = _spec(r, source, base / name, disk="buffered", name=name.replace(" ", "_"), **more)
            running[name] = stack.enter_context(closing(RunningPipeline(spark, spec, source)))
        for number, batch in enumerate(stream_batches(keys, size, _UNUSED_COLD + _UNUSED_TURNS)):
            for name in sorted(running, reverse=number % 2 == 0):
                before_s = python_seconds()
                report = running[name].take_in(batch)
                taken_s = python_seconds() - before_s
                if report.outcomes.get("shed", 0) or report.rows_in != size:
                    raise RuntimeError(f"a batch of {size} rows gave {report.outcomes}, though nothing had to be shed")
                if number >= _UNUSED_COLD:
                    rates[name].append(size / taken_s)
    return rates


def _load(spark: SparkSession, r: Relation, base: Path, keys: int, times: float, rate: float, seconds: float) -> Load:
    overload = {"latency": f"{GOAL_S}s", "archive": {"path": str(base / "archive")}}
    pipeline = Pipeline.from_dict(_spec(r, base / "source", base, overload=overload))
    load = Load(times, 0)
    feed = FileFeed(base / "source", keys, rate)
    begin = time.monotonic()
    with feed:
        pipeline.run(spark, watch=load.add, stopping=lambda: time.monotonic() - begin > seconds)
    during = list(load.batches)
    pipeline.run(spark, once=True)
    start = time.perf_counter()
    pipeline.reconcile(spark)
    load.repair_s = time.perf_counter() - start
    load.rows, load.batches = feed.rows, during
    files = DeltaTable(str(base / "sink")).file_uris()
    with duckdb.connect() as connection:
        found = connection.execute("SELECT count(*), sum(seq)::HUGEINT FROM read_parquet(?)", [files]).fetchone()
    assert found is not None
    load.missing = abs(feed.rows - found[0]) + int(int(found[1] or 0) != feed.sums)
    shutil.rmtree(base)  # hundreds of millions of rows
    return load


@dataclass(frozen=True)
class SparksRun:
    """Lag of Spark's own pipeline over time, in seconds of the source, and its rows per second."""

    at: list[float]
    lag_s: list[float]
    per_s: float


def _sparks(spark: SparkSession, static: Path, base: Path, keys: int, rate: float, seconds: float) -> SparksRun:
    with FileFeed(base / "source", keys, rate) as feed:
        stream = spark.readStream.schema("key long, seq long").parquet(str(base / "source"))
        joined = stream.join(spark.read.parquet(str(static)).select("key", *_COLUMNS), "key")
        writer = joined.writeStream.format("parquet").option("path", str(base / "out"))
        query = writer.option("checkpointLocation", str(base / "checkpoint")).trigger(processingTime="1 second").start()
        begin, at, lag_s, done = time.monotonic(), [0.0], [0.0], 0
        while at[-1] < seconds:
            query.awaitTermination(1)
            done = sum(json.loads(progress.json)["numInputRows"] for progress in query.recentProgress)
            at.append(time.monotonic() - begin)
            lag_s.append((feed.rows - done) / rate)
    query.stop()
    return SparksRun(at, lag_s, done / at[-1])


def _plot(loads: list[Load], sparks: SparksRun, path: Path) -> None:
    """Plot p95 latency and share of rows shed per batch over time, for each rate of the source, and Spark's lag."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for load in loads:
        batches = [batch for batch in load.batches if batch.overload and batch.overload.latencies]
        if not batches:
            continue
        at = [batch.at - load.batches[0].at for batch in batches]
        above.plot(at, [_p95(batch) for batch in batches], marker="o", label=f"{load.times:g}x")
        below.plot(at, [b.outcomes["shed"] / max(b.rows_in, 1) for b in batches], marker="o")
    above.plot(sparks.at, sparks.lag_s, color="grey", linestyle="--", label="1x, Spark's own join:\nlag")
    above.axhline(GOAL_S, color="black", linestyle=":", label="goal")
    above.set_ylabel("latency p95 (s)")
    below.set_ylabel("rows shed (share)")
    below.set_ylim(0, 1)
    below.set_xlabel("seconds")
    plain_axes(above, "y")
    plain_axes(below, "y")
    figure.legend(title="source over capacity", loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=120)
