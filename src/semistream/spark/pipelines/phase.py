"""Run one phase of a batch on all executors: distribute its inputs to tasks, and collect their results."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Expressions, by column name, that Spark computes over joined rows, and the table that the rows are written to."""

    expressions: dict[str, str]
    layout: TableLayout


def run_phase(
    spark: SparkSession, task: PipelineTask, rows: DataFrame | None, splits: Sequence[Split], computed: Computed | None
) -> TaskResult:
    """Run a phase over Spark's ``rows`` and the ``splits`` that tasks read themselves; return the total result.

    There is one task per slot, since every task makes a pass over R, or one task per part of R.
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
            done = frame.mapInArrow(partial(run_partition, task), WORK_SCHEMA)
        else:
            done = _computed(frame, task, computed)
        return TaskResult.total(read_work(row[WORK]) for row in done.collect())


def inputs_of(
    spark: SparkSession, rows: DataFrame | None, shares: int, slots: int, routed: JoinPlan | None = None
) -> DataFrame | None:
    """Return the input of a phase: ``rows`` with a null last column, and one row per share of splits with its number.

    Columns are named by position. With ``routed``, rows are in the partitions that own their keys. None if there is
    no input.
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
    """Join rows in tasks, let Spark compute columns over the results, and write them in further tasks."""
    assert task.given_out is not None
    given = from_arrow_schema(carried_schema(task.given_out).append(pa.field(WORK, pa.binary())))
    joined = frame.mapInArrow(partial(run_partition, task), given)
    own = [sf.col(quoted(name)) for name in task.given_out.names]
    made = [sf.expr(text).alias(name) for name, text in computed.expressions.items()]
    rows = joined.select(*own, *made, sf.col(WORK))
    numbered = rows.toDF(*(f"c{i}" for i in range(len(rows.columns))))
    return numbered.mapInArrow(partial(write_partition, computed.layout, task.plan.prefix), WORK_SCHEMA)
