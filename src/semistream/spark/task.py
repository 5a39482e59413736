"""What a Spark task does in a Python worker: join the rows of a partition, drained to the last."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from semistream.joins import SemiStreamJoin
from semistream.spark.arrow_types import convert_batch
from semistream.spark.engines import ENGINES, Engine, Engines
from semistream.spark.plan import JoinPlan
from semistream.spark.routing import split_rows


def join_partition(
    plan: JoinPlan, batches: Iterator[pa.RecordBatch], engines: Engines = ENGINES
) -> Iterator[pa.RecordBatch]:
    """All results of a partition's rows with one version of R, and none of any other task.

    Nothing waits in the operator when the task ends, so Spark's own replay of a task or of a micro-batch gives the
    same results again, in this worker or another.
    """
    with engines.lend(plan) as engine:
        for batch in _join(plan, engine, batches):
            yield batch if plan.spark_schema == plan.schema else convert_batch(batch, plan.spark_schema)


def _join(plan: JoinPlan, engine: Engine, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    operator: SemiStreamJoin | None = None
    part = 0
    for batch in batches:
        rows = convert_batch(batch, plan.stream_schema)
        for owner, piece in split_rows(rows, plan.stream_keys, engine.relation.codec, plan.cuts, part):
            if operator is not None and owner != part:
                yield from operator.flush()
            part = owner
            operator = engine.operator(part)
            yield from operator.push(piece)
    if operator is not None:
        yield from operator.flush()
