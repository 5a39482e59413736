"""SparkWorkers: a pipeline's batches on Spark. Executors read the source's rows and run the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from semistream.pipelines.batch.workers import BatchInput, Workers
from semistream.pipelines.carried_types import carried_schema
from semistream.pipelines.inputs.splits import SourceSplit, Split, share_among_owners, share_out
from semistream.pipelines.ledger.entries import Plan, TaskResult
from semistream.pipelines.overload.task_shedding import TaskShedding
from semistream.pipelines.task.worker_task import (
    WORK,
    WORK_SCHEMA,
    PipelineTask,
    read_work,
    run_task,
    write_partition,
)
from semistream.pipelines.updates.relation_updates import RelationUpdates
from semistream.shedding import PartSummary
from semistream.spark.joins.routing import quoted
from semistream.spark.pipelines.offset_log import files_by_log, rows_by_offsets
from semistream.spark.pipelines.part_summaries import summarize_parts
from semistream.spark.pipelines.task_inputs import inputs_of
from semistream.spark.planning.computed_columns import ComputedColumns
from semistream.spark.session import worker_interpreter
from semistream.spark.sources.base import BatchSource
from semistream.spark.sources.read_failures import named_failures
from semistream.spark.updates.spark_update_reader import SparkUpdateReader


@dataclass(frozen=True)
class SparkWorkers(Workers):
    """Workers of a pipeline on Spark, with the DataFrame of one batch of the source, or None.

    ``log`` is the folder in which Spark records the source's offsets.
    """

    spark: SparkSession
    source: BatchSource
    computed: ComputedColumns
    updates: Sequence[RelationUpdates]
    log: Path
    df: DataFrame | None = None

    def with_batch(self, df: DataFrame) -> SparkWorkers:
        """Return these workers with a batch of the source."""
        return replace(self, spark=df.sparkSession, df=df)

    @property
    def computes(self) -> bool:
        return bool(self.computed.after)

    def update_relations(self) -> None:
        for updates in self.updates:
            updates.apply(SparkUpdateReader(self.spark))

    def files(self, source_batch: int) -> list[str]:
        assert self.df is not None
        return self.source.files(self.df, partial(files_by_log, self.log, source_batch))

    def read(self, plan: Plan) -> BatchInput:
        with named_failures():
            given = self.source.read(self.df, plan.files, self.spark)
        return given if given.rows is None else replace(given, rows=self.computed.applied(given.rows))

    def source_rows(self, given: BatchInput, plan: Plan) -> _SourceRows:
        return _SourceRows(self.spark, given.rows, given.splits, self.log, plan.source_batch)

    def run_phase(self, task: PipelineTask, rows: DataFrame | None, splits: Sequence[Split]) -> TaskResult:
        """Run a phase with one task per slot, since every task makes a pass over R, or one task per part of R."""
        slots, owners = self.spark.sparkContext.defaultParallelism, task.plan.routed
        shared = share_out(splits, slots) if owners is None else share_among_owners(splits, owners.num_parts)
        first = task.joins[0][0]
        routed = first if first.cuts and rows is not None else None
        frame = inputs_of(self.spark, rows, len(shared), slots, routed)
        if frame is None:
            return TaskResult()
        task = replace(task, splits=tuple(shared))
        with worker_interpreter(self.spark), named_failures():
            if task.given_out is None:
                done = frame.mapInArrow(partial(_run_partition, task), WORK_SCHEMA)
            else:
                done = self._computed(frame, task, task.given_out)
            return TaskResult.total(read_work(row[WORK]) for row in done.collect())

    def _computed(self, frame: DataFrame, task: PipelineTask, given_out: pa.Schema) -> DataFrame:
        """Join rows in tasks, let Spark compute columns over the results, and write them in further tasks."""
        given = from_arrow_schema(carried_schema(given_out).append(pa.field(WORK, pa.binary())))
        joined = frame.mapInArrow(partial(_run_partition, task), given)
        own = [sf.col(quoted(name)) for name in given_out.names]
        made = [sf.expr(text).alias(name) for name, text in self.computed.after.items()]
        rows = joined.select(*own, *made, sf.col(WORK))
        numbered = rows.toDF(*(f"c{i}" for i in range(len(rows.columns))))
        layout = task.plan.tables["joined"]
        return numbered.mapInArrow(partial(write_partition, layout, task.plan.prefix), WORK_SCHEMA)


@dataclass(frozen=True)
class _SourceRows:
    """Rows of a source's batch on Spark; implements `SourceRows`."""

    spark: SparkSession
    rows: DataFrame | None
    splits: Sequence[SourceSplit]
    log: Path
    source_batch: int | None

    @property
    def through_spark(self) -> bool:
        """True if Spark reads rows of the batch."""
        return self.rows is not None

    def count_by_offsets(self) -> int | None:
        """Return the number of rows that Spark reads, by the source's offsets; None if unknown."""
        return None if self.source_batch is None else rows_by_offsets(self.log, self.source_batch)

    def summarize(self, shedding: TaskShedding, strategy: str, splits: Sequence[Split]) -> list[PartSummary]:
        """Summarize each part of the batch for a shedding strategy."""
        return summarize_parts(self.spark, shedding, strategy, self.rows, splits)


def _run_partition(task: PipelineTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a task over the partition of Spark that it is called for."""
    context = TaskContext.get()
    assert context is not None
    yield from run_task(task, context.partitionId(), batches)
