"""Spark part of the demo: run the pipeline, and the same joins with Spark's own operators, on the same orders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from semistream.errors import SemistreamError
from semistream.pipelines.batch.batch_report import BatchReport
from semistream.spark.pipelines.listener import SPARK_METRICS
from semistream.spark.pipelines.pipeline import Pipeline
from semistream.spark.session import local_session

_POLL_S = 0.2


@dataclass(frozen=True)
class Batch:
    """A finished micro-batch. ``seconds`` is its total duration, Spark's ``triggerExecution``."""

    number: int
    rows: int
    seconds: float

    @property
    def rows_per_s(self) -> float:
        """Orders joined and written per second."""
        return self.rows / self.seconds


@contextmanager
def open_session(cores: int, *, log: Path, warehouse: Path) -> Iterator[SparkSession]:
    """Open a local Spark session whose output, and that of its workers, goes to the file ``log``."""
    settings = {
        "spark.sql.shuffle.partitions": str(cores),  # Spark's default of 200 would slow its own join down
        "spark.sql.streaming.numRecentProgressUpdates": "1000000",
        "spark.sql.warehouse.dir": str(warehouse),
    }
    with local_session("semistream demo", cores, log=log, settings=settings) as session:
        yield session


def read_orders(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Read orders as a stream, one file per micro-batch."""
    schema = spark.read.parquet(str(files[0])).schema
    names = ",".join(file.name for file in files)
    return (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .option("pathGlobFilter", f"{{{names}}}")
        .parquet(str(files[0].parent))
    )


def join_with_spark(orders: DataFrame, data: Path) -> DataFrame:
    """Return the demo's star join as Spark plans it by default: a stream joined with static DataFrames."""
    spark = orders.sparkSession
    products, customers, stores = (
        spark.read.parquet(str(data / f"{name}.parquet")) for name in ("products", "customers", "stores")
    )
    valid = orders.where("quantity BETWEEN 1 AND 1000 AND customer IS NOT NULL")
    joined = (
        valid.join(products.select("id", "sku", "category", "price"), valid["product_id"] == products["id"])
        .drop("id")
        .join(customers, valid["customer"] == customers["code"], "left")
        .drop("code")
    )
    return joined.join(stores, joined["store_id"] == stores["id"]).drop("id")


def run_pipeline(file: Path, spark: SparkSession, watch: Callable[[BatchReport], None]) -> list[Batch]:
    """Run a pipeline over all available input; return the source's batches, with Spark's duration of each."""
    pipeline = Pipeline.from_yaml(file)
    reports: list[BatchReport] = []

    def done(report: BatchReport) -> None:
        reports.append(report)
        watch(report)

    pipeline.run(spark, once=True, watch=done)
    lines = (pipeline.spec.checkpoint / SPARK_METRICS).read_text().splitlines()
    seconds = {line["source_batch"]: line["seconds"] for line in map(json.loads, lines)}
    own = [report for report in reports if report.source_batch is not None]
    return [Batch(r.source_batch or 0, r.rows_in, seconds[r.source_batch]) for r in own]


def join_strategy(df: DataFrame) -> str:
    """Return the names and counts of the join operators in Spark's plan of a DataFrame."""
    with redirect_stdout(StringIO()) as plan:
        df.explain()
    found = re.findall(r"\b(\w+Join)\b", plan.getvalue())
    return " and ".join(f"{found.count(name)} {name}" for name in dict.fromkeys(found)) or "unknown"


def run_query(df: DataFrame, folder: Path, *, log: Path) -> Iterator[Batch]:
    """Run a streaming query over all available files; yield each micro-batch as it finishes.

    Results are written to ``folder/results`` as Parquet, next to the checkpoint. The error of a failed query names
    ``log``, the file with Spark's log.
    """
    query = (
        df.writeStream.format("parquet")
        .option("path", str(folder / "results"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    done = -1
    try:
        active = True
        while active:
            active = not query.awaitTermination(_POLL_S)
            for batch in _finished(query.recentProgress, after=done):
                done = batch.number
                yield batch
    except StreamingQueryException as error:
        raise SemistreamError(f"the query in {folder} failed: {_reason(error)}. The full error is in {log}.") from error
    finally:
        query.stop()


def _reason(error: StreamingQueryException) -> str:
    """Return the last line that looks like a Python error, else the first line of Spark's message."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    traced = [line for line in lines if re.match(r"[\w.]+: ", line)]
    return (traced or lines)[-1 if traced else 0].rstrip(".")


def _finished(progress: Iterable[Any], *, after: int) -> Iterator[Batch]:
    for report in progress:
        if report.batchId > after and report.numInputRows:
            yield Batch(report.batchId, report.numInputRows, report.durationMs["triggerExecution"] / 1000)
