"""pipeline: a pipeline from files through a join to a Delta table, against Spark's own stream-static join to Parquet.

All read the same folder of Parquet files, one per micro-batch. The ceiling is the same work without ledger and table: a
plain job for each file, whose tasks join the rows and write them to a Parquet file each. Spark reads its R through the
system's page cache, which has room for all of it here. One pipeline does so too (``disk: buffered``); another bypasses
that cache, so that all its memory is counted. Rates are rows of S per second of the whole execution of a micro-batch,
or of the whole job.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.harness.local_spark import CORES, start_spark
from benchmarks.harness.report import Report
from benchmarks.harness.workload import batch_rows, relation, relation_parquet, relation_rows
from benchmarks.spark.spark_join import SETTINGS, WORKER_MEMORY, Effort, batch_rates, link_files, write_stream
from semistream import Relation
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.task.worker_joins import WORKER_JOINS
from semistream.spark.pipelines.pipeline import Pipeline
from semistream.spark.session import worker_interpreter

OURS, CEILING, SPARKS = Effort(6, 12), Effort(6, 12), Effort(2, 4)
OVER_SPARK, OF_CEILING = 8.0, 0.6


def run(scale: float, folder: Path) -> Report:
    rows, batch = relation_rows(scale), batch_rows(scale)
    setup = f"R {rows:,} x 120 B, S Zipf(1) in micro-batches of {batch:,}, local[{CORES}], 10 % of R as memory in all"
    report = Report("pipeline", scale, setup)
    r, static = relation(folder, rows), relation_parquet(folder, rows)
    spark = start_spark(SETTINGS)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        base = Path(scratch).absolute()
        files = write_stream(base, rows, batch, OURS.batches)
        rates = {disk: _pipeline(spark, r, files, base / disk, disk)[OURS.cold :] for disk in ("direct", "buffered")}
        direct = report.add("pipeline into Delta, R past the system's cache", rates["direct"]).median
        cached = report.add("pipeline into Delta, R through it", rates["buffered"]).median
        bare = report.add("worker-written Parquet, no ledger", _bare(spark, r, files, base)[CEILING.cold :]).median
        theirs = report.add("Spark's own join into Parquet", _sparks(spark, static, files, base)[SPARKS.cold :]).median
    spark.stop()
    report.require("pipeline over Spark's own join, both with R in the system's cache", OVER_SPARK, cached / theirs)
    report.require("pipeline past that cache over Spark's own join in it", OVER_SPARK, direct / theirs)
    report.require("pipeline over the ceiling, both past the cache", OF_CEILING, direct / bare)
    return report


def _pipeline(spark: SparkSession, r: Relation, files: list[Path], base: Path, disk: str) -> list[float]:
    source = link_files(files, base / "pipeline")
    schema = {"key": "bigint", "seq": "bigint"}
    tables = {name: {"path": str(base / "tables" / name)} for name in ("sink", "unmatched", "quarantine")}
    pipeline = Pipeline.from_dict(
        {
            "name": "benchmark",
            "source": {"format": "parquet", "path": str(source), "schema": schema, "files_per_batch": 1},
            "steps": [{"join": {"relation": str(r.path.absolute()), "on": "key", "disk": disk}}],
            **tables,
            "checkpoint": str(base / "checkpoint"),
            "memory": WORKER_MEMORY,
        }
    )
    reports = []
    with pipeline.started(spark, once=True, watch=reports.append) as query:
        query.awaitTermination()
        seconds = [taken for _, taken in batch_rates(query)]
    return [report.rows_in / taken for report, taken in zip(reports, seconds, strict=True)]


def _bare(spark: SparkSession, r: Relation, files: list[Path], base: Path) -> list[float]:
    out = base / "bare"
    out.mkdir()
    rates = []
    for file in files:
        df = spark.read.schema("key long, seq long").parquet(str(file))
        start = time.perf_counter()
        plan = JoinPlan.of(
            r,
            pa.schema([("key", pa.int64()), ("seq", pa.int64())]),
            on="key",
            how="inner",
            memory=WORKER_MEMORY,
            operator="auto",
            columns=None,
            suffix="_right",
            options={},
        )
        with worker_interpreter(spark):
            written = df.mapInArrow(partial(_join_and_write, plan, str(out)), "rows long").collect()
        rates.append(sum(row["rows"] for row in written) / (time.perf_counter() - start))
    return rates


def _join_and_write(plan: JoinPlan, folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    path = Path(folder) / f"{uuid.uuid4().hex}.parquet"
    with (
        WORKER_JOINS.lend(plan) as worker_join,
        pq.ParquetWriter(path, plan.schema, compression="zstd", compression_level=1) as writer,
    ):
        operator = worker_join.operator(0)
        for batch in batches:
            for result in operator.push(pa.RecordBatch.from_arrays(batch.columns, schema=plan.stream_schema)):
                writer.write_batch(result)
                rows += result.num_rows
        for result in operator.flush():
            writer.write_batch(result)
            rows += result.num_rows
    yield pa.record_batch({"rows": [rows]})


def _sparks(spark: SparkSession, static: Path, files: list[Path], base: Path) -> list[float]:
    source = link_files(files[: SPARKS.batches], base / "spark")
    stream = spark.readStream.schema("key long, seq long").option("maxFilesPerTrigger", 1).parquet(str(source))
    joined = stream.join(spark.read.parquet(str(static)), "key")
    writer = joined.writeStream.format("parquet").option("path", str(base / "spark-out"))
    query = writer.option("checkpointLocation", str(base / "spark-checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [rate for rate, _ in batch_rates(query)]
