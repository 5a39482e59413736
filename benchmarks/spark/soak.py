"""soak: two hours of one pipeline on Spark, whose processes and folders must not grow.

Orders arrive all the time, and now and then far too many for the latency goal. The relation is updated every half
minute, new customers get surrogate keys, and idle times repair what was shed. Once a minute the driver, the JVM and the
Python workers are measured, and the folders. What is there after the first quarter must do for the rest.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.harness.local_spark import CORES, start_spark
from benchmarks.harness.report import Report
from benchmarks.spark.spark_join import SETTINGS
from semistream import Relation
from semistream.cli.plots import BLUE, plain_axes
from semistream.pipelines.batch.batch_report import BatchReport
from semistream.spark import Pipeline

MINUTES = 120.0
GOAL_S = 20
_PRODUCTS, _CUSTOMERS = 2_000_000, 200_000
_EVERY_S, _ROWS = 1.0, 20_000  # of the files of orders
_BURST_EVERY_S, _BURST_FILES = 600.0, 400
_UPDATE_EVERY_S, _UPDATED = 30.0, 5_000
_SAMPLE_S = 60.0
_MOST_GROWTH = 1.1  # of the last quarter over the second one
_SCHEMA = {"order": "bigint", "product": "bigint", "customer": "bigint", "amount": "double"}
Told = TypeVar("Told")
_PROGRESS = Console(stderr=True, soft_wrap=True, highlight=False)


@dataclass(frozen=True)
class Sample:
    """What there is at a time, in minutes since the begin."""

    minute: float
    driver_mb: float
    jvm_mb: float
    workers_mb: float
    descriptors: int
    threads: int
    checkpoint_mb: float
    relations_mb: float
    batch_s: float
    lag_s: float


def run(scale: float, folder: Path) -> Report:
    minutes = MINUTES * min(scale, 1.0)
    setup = f"{minutes:.0f} min, R {_PRODUCTS:,}, {_ROWS / _EVERY_S:,.0f} orders/s and bursts, local[{CORES}]"
    report = Report("soak", scale, setup)
    spark = start_spark(SETTINGS)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        soak = _Soak(spark, Path(scratch).absolute())
        soak.run(60 * minutes)
    spark.stop()
    _plot(soak.samples, folder / "soak.png")
    quarter = len(soak.samples) // 4
    second, last = soak.samples[quarter : 2 * quarter] or soak.samples, soak.samples[-quarter:]
    for field in fields(Sample)[1:]:
        before, after = (statistics.median(getattr(each, field.name) for each in part) for part in (second, last))
        report.add(field.name, [after], unit="", note=f"{before:.1f} in the second quarter, {after:.1f} in the last")
        if field.name not in ("batch_s", "lag_s"):
            report.require(f"{field.name} does not grow", 1.0, _MOST_GROWTH * before / max(after, 1e-9))
    shed = sum(each.outcomes.get("shed", 0) for each in soak.reports)
    rows = sum(each.rows_in for each in soak.reports)
    report.remark(f"{len(soak.reports)} batches, {rows:,} rows, of which {shed:,} were shed and repaired later")
    report.remark(f"picture: {folder / 'soak.png'}")
    return report


class _Soak:
    """A pipeline with its feed and its samples."""

    def __init__(self, spark: SparkSession, base: Path) -> None:
        self._spark, self._base = spark, base
        self._draw = np.random.default_rng(1)
        self._ending = threading.Event()
        self.samples: list[Sample] = []
        self.reports: list[BatchReport] = []
        for name in ("orders", "updates"):
            (base / name).mkdir()
        Relation.build(self._products(np.arange(_PRODUCTS)), base / "products", key="id")
        for turn in range(4):  # generating rows would compete with the measured work
            pq.write_table(self._orders(), base / f"orders-{turn}.parquet")

    def run(self, seconds: float) -> None:
        """Feed and run the pipeline for some seconds."""
        self._begin = time.monotonic()
        feed = threading.Thread(target=self._feed, name="feed", daemon=True)
        feed.start()
        pipeline = Pipeline.from_dict(self._spec())
        try:
            pipeline.run(self._spark, watch=self._watch, stopping=lambda: time.monotonic() - self._begin > seconds)
        finally:
            self._ending.set()
            feed.join()

    def _feed(self) -> None:
        """Bring files at their times, and take the samples."""
        sent = updates = bursts = 0
        while not self._ending.wait(0.05):
            passed = time.monotonic() - self._begin
            if passed >= (bursts + 1) * _BURST_EVERY_S:
                bursts += 1
                for number in range(_BURST_FILES):
                    self._put(f"burst-{bursts:06d}-{number:06d}", number % 4)
            while sent * _EVERY_S <= passed:
                self._put(f"{sent:08d}", sent % 4)
                sent += 1
            while (updates + 1) * _UPDATE_EVERY_S <= passed:
                updates += 1
                hidden = self._base / "updates" / f"_{updates:08d}.parquet"
                pq.write_table(self._products(self._draw.choice(_PRODUCTS, _UPDATED, replace=False)), hidden)
                hidden.rename(hidden.with_name(hidden.name[1:]))
            if passed >= len(self.samples) * _SAMPLE_S:
                self._sample(passed)

    def _put(self, name: str, turn: int) -> None:
        hidden = self._base / "orders" / f"_{name}.parquet"
        shutil.copyfile(self._base / f"orders-{turn}.parquet", hidden)
        hidden.rename(hidden.with_name(hidden.name[1:]))

    def _watch(self, report: BatchReport) -> None:
        self.reports.append(report)

    def _sample(self, passed: float) -> None:
        own = psutil.Process()
        below = own.children(recursive=True)
        names = [_told(each, psutil.Process.name, "") for each in below]
        resident = [_told(each, lambda process: process.memory_info().rss, 0) / 1e6 for each in below]
        last = self.reports[-20:]
        taken = Sample(
            minute=passed / 60,
            driver_mb=own.memory_info().rss / 1e6,
            jvm_mb=sum(held for name, held in zip(names, resident, strict=True) if name.startswith("java")),
            workers_mb=sum(held for name, held in zip(names, resident, strict=True) if name.startswith("python")),
            descriptors=sum(_told(each, psutil.Process.num_fds, 0) for each in (own, *below)),
            threads=sum(_told(each, psutil.Process.num_threads, 0) for each in (own, *below)),
            checkpoint_mb=_megabytes(self._base / "checkpoint"),
            relations_mb=_megabytes(self._base / "products") + _megabytes(self._base / "keys"),
            batch_s=statistics.median(each.seconds for each in last) if last else 0.0,
            lag_s=max((each.lag_s or 0.0 for each in last), default=0.0),
        )
        self.samples.append(taken)
        _PROGRESS.print("  ".join(f"{field.name} {getattr(taken, field.name):,.1f}" for field in fields(Sample)))

    def _products(self, ids: Any) -> pa.Table:
        return pa.table(
            {"id": ids, "price": self._draw.random(ids.size), "stock": self._draw.integers(0, 99, ids.size)}
        )

    def _orders(self) -> pa.Table:
        draw, rows = self._draw, _ROWS
        return pa.table(
            {
                "order": draw.integers(0, 1 << 60, rows),
                "product": draw.integers(0, _PRODUCTS, rows),
                "customer": draw.integers(0, _CUSTOMERS, rows),
                "amount": draw.random(rows),
            }
        )

    def _spec(self) -> dict[str, Any]:
        at = self._base
        join = {"relation": str(at / "products"), "on": {"product": "id"}}
        updates = {"format": "parquet", "path": str(at / "updates")}
        return {
            "name": "soak",
            "source": {"format": "parquet", "path": str(at / "orders"), "schema": _SCHEMA},
            "steps": [
                {"surrogate_key": {"relation": str(at / "keys"), "key": "customer", "into": "customer_key"}},
                {"join": {**join, "updates": updates}},
            ],
            **{name: {"path": str(at / name)} for name in ("sink", "unmatched", "quarantine")},
            "checkpoint": str(at / "checkpoint"),
            "memory": "64MB",
            "overload": {"latency": f"{GOAL_S}s", "archive": {"path": str(at / "archive")}, "repair": "idle"},
        }


def _told(process: psutil.Process, ask: Callable[[psutil.Process], Told], otherwise: Told) -> Told:
    """Return what a process tells of itself, or ``otherwise`` if it has ended meanwhile."""
    try:
        return ask(process)
    except psutil.Error:
        return otherwise


def _megabytes(folder: Path) -> float:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size
        except OSError:  # it has gone meanwhile
            continue
    return total / 1e6


def _plot(samples: list[Sample], path: Path) -> None:
    figure = Figure((11, 7), layout="constrained")
    panels = figure.subplots(3, 3)
    for panel, field in zip(panels.flat, fields(Sample)[1:], strict=True):
        panel.plot([each.minute for each in samples], [getattr(each, field.name) for each in samples], color=BLUE)
        panel.set_title(field.name.replace("_mb", ", MB").replace("_s", ", s"), loc="left", fontsize=10)
        panel.set_ylim(bottom=0)
        plain_axes(panel, "y")
    for panel in panels[-1]:
        panel.set_xlabel("minutes")
    figure.savefig(path, dpi=130)
