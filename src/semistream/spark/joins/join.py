"""join() on Spark: a DataFrame, batch or streaming, with a relation far larger than memory.

What a Spark task does in a Python worker: join the rows of a partition, drained to the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType, UserDefinedType

from semistream.errors import InvalidArgument
from semistream.joins.base import SemiStreamJoin
from semistream.joins.condition.condition import JoinOn
from semistream.joins.condition.where import Where
from semistream.pipelines.carried_types import convert_batch
from semistream.pipelines.plan.join_plan import JoinPlan
from semistream.pipelines.plan.key_ranges import cut_codes
from semistream.pipelines.task.worker_joins import WORKER_JOINS, RoutedJoin, WorkerJoins
from semistream.relation import Relation
from semistream.spark.arrow_types import arrow_schema_of
from semistream.spark.joins.routing import quoted, route_rows
from semistream.spark.session import require_classic, worker_interpreter


def join_partition(
    plan: JoinPlan, batches: Iterator[pa.RecordBatch], kept: WorkerJoins = WORKER_JOINS
) -> Iterator[pa.RecordBatch]:
    """All results of a partition's rows with one version of R, and none of any other task.

    Nothing waits in the operator when the task ends, so Spark's own replay of a task or of a micro-batch gives the
    same results again, in this worker or another.
    """
    with kept.lend(plan) as worker_join:
        for batch in _join_all(RoutedJoin(worker_join), plan, batches):
            yield batch if plan.spark_schema == plan.schema else convert_batch(batch, plan.spark_schema)


def _join_all(join: RoutedJoin, plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from join.push(convert_batch(batch, plan.stream_schema))
    yield from join.flush()


ROUTES = ("none", "range")


def join(
    df: DataFrame,
    relation: Relation | str | Path,
    *,
    on: JoinOn | None = None,
    where: Where | None = None,
    how: str = "inner",
    memory: int | str = "10%",
    operator: str | type[SemiStreamJoin] = "auto",
    route: str = "none",
    columns: Sequence[str] | None = None,
    suffix: str = "_right",
    disk: str = "auto",
    **options: Any,
) -> DataFrame:
    """Join a DataFrame, batch or streaming, with a relation, exactly, within ``memory`` per Python worker.

    Every task drains what it was given, so Spark's own replay makes a streaming query exactly-once. The operator lives
    on in its Python worker from one micro-batch to the next, with its caches, as soft state: if the worker is lost, the
    next one starts cold and gives the same rows. Every task opens the version of R that is current when it starts and
    joins with that one as a whole: an update is seen by the next micro-batch, without a restart.

    Parameters
    ----------
    df
        The stream: rows of any types that Arrow carries.
    relation
        R, or its path: one that the driver and all executors see.
    on
        A column, several, or a mapping from the stream's columns to the relation's, which must be equal.
    where
        What else must hold, with or without ``on``: ``"s.at BETWEEN r.since AND r.until"``, ``"s.x < r.k"``,
        ``"abs(s.at - r.at) <= 5 minutes"``, several with AND between, an Arrow expression over the joined row, or a
        sequence of these.
    how
        ``"inner"``, ``"left"``, ``"semi"`` or ``"anti"``. Nulls match nothing.
    memory
        All that the operator may use in each Python worker: bytes, ``"64MB"``, or a share of the whole of R. It is
        resolved now: R may grow later, the bytes stay. A worker that serves several joins holds the memory of each, of
        at most four.
    operator
        ``"auto"``, an operator's name, or its class. ``options`` go to it.
    route
        ``"none"`` leaves rows in their partitions, and every worker reads all of R. ``"range"`` sends each row to the
        task that owns its range of keys, and each reads and caches its part of R only: it costs a shuffle of the stream
        and saves reads. There are as many parts as Spark has task slots. It needs an equality on R's key: a range of
        keys can lie in several parts, and other columns in all of them.
    columns, suffix
        R's columns to give out (all but those that ``on`` names), and what is added to a name that the stream has too.
    disk
        How R is read: ``"direct"``, past the system's page cache, so that ``memory`` is all that the join uses;
        ``"buffered"``, through it, where the machine has memory to spare, as Spark reads its own files; ``"auto"``,
        direct where the file system can.

    All that can be wrong with the arguments is found here, on the driver, and raised as a `SemistreamError`.

    >>> enriched = join(orders, "warehouse/products", on={"product": "id"}, memory="256MB")  # doctest: +SKIP
    """
    df = require_classic(df)
    if route not in ROUTES:
        raise InvalidArgument(f"route is {route!r}; give one of {', '.join(map(repr, ROUTES))}.")
    opened = relation.refreshed() if isinstance(relation, Relation) else Relation.open(relation)
    plan = JoinPlan.of(
        opened,
        arrow_schema_of(df),
        on=on,
        where=where,
        how=how,
        memory=memory,
        operator=operator,
        columns=columns,
        suffix=suffix,
        disk=disk,
        options=options,
    )
    stream = df
    if route == "range":
        if plan.access != "equality":
            raise InvalidArgument(
                f"route='range' sends rows to the part of R that holds their key, but the condition does not equate "
                f"R's key ({', '.join(plan.key)}). Use route='none', or equate the key by on=."
            )
        plan = replace(plan, cuts=cut_codes(opened, df.sparkSession.sparkContext.defaultParallelism))
        stream = route_rows(df, plan)
    with worker_interpreter(df.sparkSession):
        # By position: mapInArrow cannot take columns whose names have a dot or a backtick in them.
        numbered = stream.toDF(*(f"c{i}" for i in range(len(df.columns))))
        joined = numbered.mapInArrow(partial(_join, plan), from_arrow_schema(plan.spark_schema))
    return _with_types_of(df, joined)


def _join(plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return join_partition(plan, batches)


def _with_types_of(df: DataFrame, joined: DataFrame) -> DataFrame:
    """The stream's columns in their own types where Arrow knows only a wider one: ``time(3)``, ``interval hour``."""
    wanted: StructType = df.schema
    given: StructType = joined.schema
    casts = {
        field.name: sf.col(quoted(field.name)).cast(field.dataType)
        for field, other in zip(wanted, given, strict=False)
        if field.dataType != other.dataType and not isinstance(field.dataType, UserDefinedType)
    }
    return joined.select(*(casts.get(name, sf.col(quoted(name))) for name in joined.columns)) if casts else joined
