"""Pipeline: rows of a source through joins to tables of the warehouse, each exactly once, whatever is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from semistream.errors import PipelineError
from semistream.pipelines.batch.batch_report import BatchReport, reason_of
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.open_tables import open_tables
from semistream.pipelines.plan.step_plans import plan_steps
from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.yaml_file import make_spec, read_spec
from semistream.pipelines.tables.table import Owner
from semistream.spark.kafka.topic_table import KINDS
from semistream.spark.pipelines.batch_runner import BatchRunner
from semistream.spark.pipelines.listener import SPARK_METRICS, PipelineListener, listening
from semistream.spark.planning.computed_columns import ComputedColumns
from semistream.spark.sources.open_batches import open_source

_POLL_S = 0.2

Watch = Callable[[BatchReport], None]
"""Is told of each batch that is done."""


def _unwatched(report: BatchReport) -> None:
    """Nobody looks."""


class Pipeline:
    """A pipeline on Spark Structured Streaming.

    Each micro-batch goes through the ledger in the checkpoint folder: before any work it is decided which version of
    each relation it is joined with; the Python workers join the rows and write the results themselves; when all are
    written, that is recorded, then each table is committed once by the batch's number, and the batch is done. Killed at
    any point and started again, it goes on from there: nothing is lost, and nothing is doubled.

    >>> pipeline = Pipeline.from_yaml("orders.yaml")  # doctest: +SKIP
    >>> pipeline.run(spark, once=True)  # doctest: +SKIP
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec

    @classmethod
    def from_yaml(cls, path: Path | str) -> Pipeline:
        """The pipeline of a file."""
        return cls(read_spec(path))

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Pipeline:
        """The pipeline of nested mappings, as a file has them."""
        return cls(make_spec(content))

    def run(
        self,
        spark: SparkSession,
        *,
        once: bool = False,
        watch: Watch = _unwatched,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run until the source has nothing new (``once``), or until ``stopping`` says so; ``watch`` is told of batches.

        What stops it, an interrupt too, lets the batch at hand finish.
        """
        with self._opened(spark, watch) as batches, self._query(spark, batches, once) as query:
            try:
                while not query.awaitTermination(_POLL_S) and not stopping():
                    batches.catch_up(spark)
            except StreamingQueryException as error:
                raise PipelineError(f"the pipeline {self.spec.name!r} stopped: {reason_of(error)}") from error
            if once and not stopping():
                batches.catch_up(spark, all_deferred=True)
                if batches.repairs_idle:
                    batches.reconcile(spark, stopping)

    def reconcile(
        self, spark: SparkSession, *, watch: Watch = _unwatched, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        """Join all rows that were shed, exactly, and let them leave the archive; the source is not read.

        Killed at any point and started again, it goes on from there: each row comes to its table once.
        """
        if self.spec.overload is None:
            raise PipelineError(f"the pipeline {self.spec.name!r} sheds no rows: it has no `overload`.")
        with self._opened(spark, watch) as batches:
            batches.reconcile(spark, stopping)

    @contextmanager
    def started(
        self, spark: SparkSession, *, once: bool = False, watch: Watch = _unwatched
    ) -> Iterator[StreamingQuery]:
        """The running query, which is stopped at the end of the block, between two batches.

        Rows that wait go on only with rows that come: `run` sees to the others too.
        """
        with self._opened(spark, watch) as batches, self._query(spark, batches, once) as query:
            yield query

    @contextmanager
    def _opened(self, spark: SparkSession, watch: Watch) -> Iterator[BatchRunner]:
        """The pipeline's ledger and tables, for this process alone."""
        spec = self.spec
        computed = ComputedColumns.of(spec, spark)
        steps = plan_steps(spec, computed.entering, spark.sparkContext.defaultParallelism)
        source = open_source(spec, through_spark=bool(computed.before) or steps.sends_rows)
        with Ledger.open(spec.checkpoint, spec.name) as ledger:
            joined = computed.leaving(steps.joined, spark)
            tables = open_tables(spec, steps.source, joined, Owner(spec.name, ledger.token), KINDS)
            batches = BatchRunner(spec, steps, computed, source, tables, ledger, watch, time.time)
            batches.recover(spark)
            yield batches

    @contextmanager
    def _query(self, spark: SparkSession, batches: BatchRunner, once: bool) -> Iterator[StreamingQuery]:
        spec = self.spec
        location = spec.checkpoint / "spark"
        if batches.has_run and not (location / "offsets").exists():
            raise PipelineError(
                f"{location}, where Spark keeps how far the source was read, is gone, but the ledger beside it is not: "
                "all rows would come twice. Restore it, or give the pipeline a new checkpoint and new tables."
            )
        listener = PipelineListener(spec.name, spec.checkpoint / SPARK_METRICS)
        writer = batches.source.stream(spark).writeStream.foreachBatch(batches.run)
        writer = writer.option("checkpointLocation", str(location)).queryName(spec.name)
        every = f"{int(parse_duration(spec.every) * 1000)} milliseconds"
        with listening(spark, listener):
            batches.triggers = listener
            query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()
            try:
                yield query
            finally:
                batches.end()
                query.stop()
                listener.collect(query.recentProgress)  # what Spark had no time to tell
