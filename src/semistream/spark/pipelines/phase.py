"""The work of one phase of a batch on all executors: inputs to tasks, and what they came to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from semistream.pipelines.carried_types import carried_schema
from semistream.pipelines.inputs.splits import Split, share_among_owners, share_out
from semistream.pipelines.ledger.entries import TaskResult
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.tables.writer import TableLayout
from semistream.spark.joins.routing import quoted, route_rows
from semistream.spark.pipelines.worker_task import (
    WORK,
    WORK_SCHEMA,
    PipelineTask,
    read_work,
    run_partition,
    write_partition,
)
from semistream.spark.session import worker_interpreter

_SPLIT = "__split"


@dataclass(frozen=True)
class Computed:
    """Columns that Spark computes of rows that were joined: expressions by name, and where rows are then written."""

    expressions: dict[str, str]
    layout: TableLayout


def run_phase(
    spark: SparkSession, task: PipelineTask, rows: DataFrame | None, splits: Sequence[Split], computed: Computed | None
) -> TaskResult:
    """Run a phase: Spark's ``rows`` and the ``splits`` that tasks read themselves.

    There are as many tasks as Spark has slots, since each of them makes a pass over R, or one for each part of it.
    """
    slots, owners = spark.sparkContext.defaultParallelism, task.plan.routed
    shared = share_out(splits, slots) if owners is None else share_among_owners(splits, owners.num_parts)
    first = task.joins[0][0]
    routed = first if first.cuts and rows is not None else None
    frame = inputs_of(spark, rows, len(shared), slots, routed)
    if frame is None:
        return TaskResult()
    task = replace(task, splits=tuple(shared))
    with worker_interpreter(spark):
        if computed is None:
            done = frame.mapInArrow(partial(_run, task), WORK_SCHEMA)
        else:
            done = _computed(frame, task, computed)
        return TaskResult.total(read_work(row[WORK]) for row in done.collect())


def inputs_of(
    spark: SparkSession, rows: DataFrame | None, shares: int, slots: int, routed: JoinPlan | None = None
) -> DataFrame | None:
    """Rows by position with a last column that is null, and a row for each share of splits with its number there.

    Rows are in the partitions that own their keys if they are ``routed`` for a join.
    """
    numbers = spark.range(0, shares, 1, max(shares, 1)).select(sf.col("id").alias(_SPLIT)) if shares else None
    if rows is None:
        return numbers
    own = rows.coalesce(slots) if routed is None else route_rows(rows, routed)
    numbered = own.toDF(*(f"c{i}" for i in range(len(rows.columns))))
    frame = numbered.withColumn(_SPLIT, sf.lit(None).cast("bigint"))
    if numbers is None:
        return frame
    nothing = [sf.lit(None).cast(field.dataType).alias(field.name) for field in numbered.schema]
    return frame.union(numbers.select(*nothing, _SPLIT)).coalesce(slots)


def _computed(frame: DataFrame, task: PipelineTask, computed: Computed) -> DataFrame:
    """Joined rows go back to Spark, which computes columns of them, and then to tasks that write them."""
    assert task.given_out is not None
    given = from_arrow_schema(carried_schema(task.given_out).append(pa.field(WORK, pa.binary())))
    joined = frame.mapInArrow(partial(_run, task), given)
    own = [sf.col(quoted(name)) for name in task.given_out.names]
    made = [sf.expr(text).alias(name) for name, text in computed.expressions.items()]
    rows = joined.select(*own, *made, sf.col(WORK))
    numbered = rows.toDF(*(f"c{i}" for i in range(len(rows.columns))))
    return numbered.mapInArrow(partial(_write, computed.layout, task.plan.prefix), WORK_SCHEMA)


def _run(task: PipelineTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return run_partition(task, batches)


def _write(layout: TableLayout, prefix: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return write_partition(layout, prefix, batches)
