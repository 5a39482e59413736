"""First, cheap pass over a batch with too many rows: tasks summarize its parts, so that the driver can shed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from semistream.pipelines.inputs.splits import SourceSplit, Split, share_out
from semistream.pipelines.overload.task_shedding import TaskShedding, summarize_inputs
from semistream.pipelines.task.worker_task import read_inputs
from semistream.shedding import STRATEGIES, PartSummary, StreamPart
from semistream.spark.joins.routing import quoted
from semistream.spark.pipelines.task_inputs import inputs_of
from semistream.spark.session import worker_interpreter

_FIELDS: dict[str, Any] = {"matches": np.int64, "seconds": np.float64, "rows": np.int64}  # as the bytes of arrays
_SCHEMA = ", ".join(["number long", *(f"{name} binary" for name in _FIELDS)])


@dataclass(frozen=True)
class _SummaryTask:
    shedding: TaskShedding
    strategy: str
    splits: tuple[tuple[Split, ...], ...]


def summarize_parts(
    spark: SparkSession,
    shedding: TaskShedding,
    strategy: str,
    rows: DataFrame | None,
    splits: Sequence[Split],
) -> list[PartSummary]:
    """Summarize the parts of a batch for a shedding strategy: Spark's ``rows``, and the source's ``splits``.

    Parts are cut as phase 0 will cut them. If rows are not valued by their matches and tasks read all rows themselves,
    the row counts in the files' metadata suffice. Otherwise tasks read only the columns that determine the matches.
    """
    if rows is None and shedding.valued is None:
        parts = [each for each in splits if isinstance(each, SourceSplit) and each.part is not None]
        made = STRATEGIES[strategy]()
        return [made.summarize(StreamPart(each.rows, each.part or 0)) for each in parts]
    slots = spark.sparkContext.defaultParallelism
    shared = share_out(splits, slots)
    on = () if shedding.valued is None else shedding.valued.on
    frame = inputs_of(spark, None if rows is None else _only(rows, on), len(shared), slots)
    if frame is None:
        return []
    task = _SummaryTask(shedding, strategy, tuple(shared))
    with worker_interpreter(spark):
        found = frame.mapInArrow(partial(_summarize, task), _SCHEMA).collect()
    return [
        PartSummary(row["number"], *(np.frombuffer(row[name], kind) for name, kind in _FIELDS.items())) for row in found
    ]


def _only(rows: DataFrame, wanted: Sequence[str]) -> DataFrame:
    """Replace all columns but the ``wanted`` ones by nulls, so that Spark need not parse them."""
    columns = [
        sf.col(quoted(field.name)) if field.name in wanted else sf.lit(None).cast(field.dataType).alias(field.name)
        for field in rows.schema
    ]
    return rows.select(*columns)


def _summarize(task: _SummaryTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    inputs = read_inputs(task.splits, first, batches)
    own = (each for each in inputs if isinstance(each, pa.RecordBatch | SourceSplit))
    context = TaskContext.get()
    assert context is not None
    found = summarize_inputs(task.shedding, STRATEGIES[task.strategy](), own, context.partitionId())
    arrays = {
        name: pa.array([getattr(each, name).astype(kind).tobytes() for each in found], pa.binary())
        for name, kind in _FIELDS.items()
    }
    yield pa.record_batch({"number": pa.array([each.number for each in found], pa.int64()), **arrays})
