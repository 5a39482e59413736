"""What a Spark task does in a Python worker: join the rows of a partition, drained to the last."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from semistream.etl.carried_types import convert_batch
from semistream.spark.engines import ENGINES, Engines
from semistream.spark.plan import JoinPlan
from semistream.spark.routed_join import RoutedJoin


def join_partition(
    plan: JoinPlan, batches: Iterator[pa.RecordBatch], engines: Engines = ENGINES
) -> Iterator[pa.RecordBatch]:
    """All results of a partition's rows with one version of R, and none of any other task.

    Nothing waits in the operator when the task ends, so Spark's own replay of a task or of a micro-batch gives the
    same results again, in this worker or another.
    """
    with engines.lend(plan) as engine:
        for batch in _join(RoutedJoin(engine), plan, batches):
            yield batch if plan.spark_schema == plan.schema else convert_batch(batch, plan.spark_schema)


def _join(join: RoutedJoin, plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from join.push(convert_batch(batch, plan.stream_schema))
    yield from join.flush()
