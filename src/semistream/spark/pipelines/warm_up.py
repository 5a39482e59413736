"""Start the Python workers of a pipeline before its first batch, which then takes little longer than the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from time import perf_counter

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.plan.step_plans import StepPlans
from semistream.pipelines.task.worker_joins import WORKER_JOINS
from semistream.pipelines.task.worker_task import WORK_SCHEMA
from semistream.spark.pipelines.task_inputs import inputs_of
from semistream.spark.session import worker_interpreter

_LOG = logging.getLogger(__name__)
_WARM = "spark.semistream.warm"
"""Setting of a session whose workers were started by a pipeline before."""


def warm_up(spark: SparkSession, steps: StepPlans) -> None:
    """Run a job whose tasks import semistream and open the joins, once in a session.

    A join that cannot be opened is no error here: the first batch tells.
    """
    if spark.conf.get(_WARM, None) is not None:
        return
    spark.conf.set(_WARM, "true")
    begun = perf_counter()
    slots = spark.sparkContext.defaultParallelism
    shares = inputs_of(spark, None, slots, slots)
    assert shares is not None
    joins = tuple(step.join for step in steps.steps)
    try:
        with worker_interpreter(spark):
            shares.mapInArrow(partial(open_joins, joins), WORK_SCHEMA).collect()
    except PySparkException:
        _LOG.info("the workers were not warmed up", exc_info=True)
    _LOG.info("the workers were warmed up in %.1f s", perf_counter() - begun)


def open_joins(joins: tuple[JoinPlan, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Open the joins of a worker, each with the part of R that the number of the share owns."""
    for batch in batches:
        for number in batch.column(batch.num_columns - 1).to_pylist():
            for plan in joins:
                with WORKER_JOINS.lend(plan) as join:
                    join.operator(number % (len(plan.cuts) + 1) if plan.cuts else 0)
    yield from ()
