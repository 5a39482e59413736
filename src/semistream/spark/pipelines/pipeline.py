"""Pipeline: load rows of a source through joins into tables of the warehouse, exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from semistream.errors import PipelineError
from semistream.pipelines.batch.batch_report import BatchReport, reason_of
from semistream.pipelines.batch.batch_runner import BatchRunner
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.open_tables import open_tables
from semistream.pipelines.plan.step_plans import plan_steps
from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.yaml_file import make_spec, read_spec
from semistream.pipelines.tables.table import Owner
from semistream.pipelines.updates.relation_updates import all_updates
from semistream.spark.kafka.topic_table import KINDS
from semistream.spark.pipelines.listener import SPARK_METRICS, PipelineListener, listening
from semistream.spark.pipelines.spark_log import SparkLog
from semistream.spark.pipelines.spark_workers import SparkWorkers
from semistream.spark.pipelines.warm_up import warm_up
from semistream.spark.planning.computed_columns import ComputedColumns
from semistream.spark.sources.open_batches import open_source

_POLL_S = 0.2

Watch = Callable[[BatchReport], None]
"""Callback with the report of each finished batch."""


def _unwatched(report: BatchReport) -> None:
    """Ignore the report."""


class Pipeline:
    """A pipeline on Spark Structured Streaming: from a source through joins to tables, exactly once.

    Each micro-batch goes through the ledger in the checkpoint folder. The versions of the relations to join with are
    recorded before any work. Python workers join the rows and write the result files. When all files are written, this
    is recorded; then each table is committed once, by the batch's number, and the batch is done. If the process is
    killed at any point, the next start resumes there: no row is lost, and none is added twice.

    Parameters
    ----------
    spec : PipelineSpec
        The validated settings. Build one with `from_yaml` or `from_dict`.

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow as pa
    >>> from semistream import Relation
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder, console = pathlib.Path(name), {"format": "console"}
    ...     products = Relation.build(pa.table({"id": [1, 2], "price": [3, 5]}), folder / "products", key="id")
    ...     spark.range(1, 3, numPartitions=1).write.json(f"{folder}/orders")
    ...     source = {"format": "json", "path": folder / "orders", "schema": {"id": "bigint"}}
    ...     join = {"relation": folder / "products", "on": "id", "unmatched": "null"}
    ...     tables = {"sink": console, "quarantine": console, "checkpoint": folder / "checkpoint"}
    ...     pipeline = Pipeline.from_dict({"name": "orders", "source": source, "steps": [{"join": join}], **tables})
    ...     pipeline.run(spark, once=True)
    batch 0: 2 rows
    id  price
    1   3
    2   5

    References
    ----------
    docs/pipelines.md; docs/architecture.md, "Pipelines".
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec

    @classmethod
    def from_yaml(cls, path: Path | str) -> Pipeline:
        """Read a pipeline from a YAML file; relative paths are relative to the file."""
        return cls(read_spec(path))

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Pipeline:
        """Build a pipeline from nested mappings, with the settings of a YAML file."""
        return cls(make_spec(content))

    def run(
        self,
        spark: SparkSession,
        *,
        once: bool = False,
        watch: Watch = _unwatched,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run the pipeline until ``stopping`` returns True; with ``once``, until all available rows are processed.

        ``watch`` is called with the report of each finished batch. The current batch finishes before the pipeline
        stops, also after an interrupt.
        """
        with self._opened(spark, watch) as (batches, workers), self._query(batches, workers, once) as query:
            batches.publishes_later = True
            try:
                while not query.awaitTermination(_POLL_S) and not stopping():
                    batches.catch_up()
            except StreamingQueryException as error:
                raise PipelineError(f"the pipeline {self.spec.name!r} stopped: {reason_of(error)}") from error
            if once and not stopping():
                batches.catch_up(all_deferred=True)
                if batches.repairs_idle:
                    batches.reconcile(stopping)

    def reconcile(
        self, spark: SparkSession, *, watch: Watch = _unwatched, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Join all shed rows, exactly, and remove them from the archive, without reading the source.

        If the process is killed at any point, the next start resumes there: each row is added to its table once.
        """
        if self.spec.overload is None:
            raise PipelineError(f"the pipeline {self.spec.name!r} sheds no rows: it has no `overload`.")
        with self._opened(spark, watch) as (batches, _):
            try:
                batches.reconcile(stopping)
            finally:
                batches.end()

    @contextmanager
    def started(
        self, spark: SparkSession, *, once: bool = False, watch: Watch = _unwatched
    ) -> Iterator[StreamingQuery]:
        """Start the query for the block, and stop it afterwards, between two batches.

        Waiting rows go on only with batches of new rows; `run` also gives them batches of their own.
        """
        with self._opened(spark, watch) as (batches, workers), self._query(batches, workers, once) as query:
            yield query

    @contextmanager
    def _opened(self, spark: SparkSession, watch: Watch) -> Iterator[tuple[BatchRunner, SparkWorkers]]:
        """Open the pipeline's ledger and tables, exclusively for this process, and recover from a crash."""
        spec = self.spec
        computed = ComputedColumns.of(spec, spark)
        steps = plan_steps(spec, computed.entering, spark.sparkContext.defaultParallelism)
        source = open_source(spec, through_spark=bool(computed.before) or steps.sends_rows)
        with Ledger.open(spec.checkpoint, spec.name) as ledger:
            joined = computed.leaving(steps.joined, spark)
            tables = open_tables(spec, steps.source, joined, Owner(spec.name, ledger.token), KINDS)
            updates = all_updates(spec.steps, ledger, ledger.writer, most_row_bytes=steps.most_row_bytes)
            workers = SparkWorkers(spark, source, computed, updates, spec.checkpoint / "spark")
            batches = BatchRunner(spec, steps, workers, tables, ledger, watch, time.time)
            batches.recover()
            yield batches, workers

    @contextmanager
    def _query(self, batches: BatchRunner, workers: SparkWorkers, once: bool) -> Iterator[StreamingQuery]:
        spec, spark, location = self.spec, workers.spark, workers.log
        if batches.has_run and not (location / "offsets").exists():
            raise PipelineError(
                f"{location}, Spark's record of the source's offsets, is missing, but the ledger next to it is not: "
                "all rows would be added twice. Restore it, or give the pipeline a new checkpoint and new tables."
            )
        log = SparkLog(location)
        log.mend(batches.last_source_batch)
        warm_up(spark, batches.steps)
        listener = PipelineListener(spec.name, spec.checkpoint / SPARK_METRICS)
        writer = workers.source.stream(spark).writeStream

        def run(df: DataFrame, number: int) -> None:
            log.sync()
            batches.run(number, workers.with_batch(df))

        writer = writer.foreachBatch(run)
        writer = writer.option("checkpointLocation", str(location)).queryName(spec.name)
        every = f"{int(parse_duration(spec.every) * 1000)} milliseconds"
        with listening(spark, listener):
            batches.last_trigger = lambda: listener.last
            query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()
            try:
                yield query
            finally:
                batches.end()
                query.stop()
                listener.collect(query.recentProgress)  # reports that Spark has not delivered yet
