"""window_join() on Spark: two streaming DataFrames joined in a window, in less memory than the window needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument
from semistream.spark.arrow_types import arrow_schema_of
from semistream.spark.session import require_classic, worker_interpreter
from semistream.spark.windows.archive_files import begin_archive
from semistream.spark.windows.key_partitions import group_numbers
from semistream.spark.windows.packed_rows import PACKED, pack_rows, unpack_rows
from semistream.spark.windows.processor import OUTPUT, RESULTS, WindowProcessor
from semistream.spark.windows.window_metrics import observed
from semistream.spark.windows.window_plan import WindowPlan, partition_count, share_of
from semistream.windows import Policy
from semistream.windows.join.capacity import Allocation, Memory
from semistream.windows.streams.event_time import SIDES
from semistream.windows.streams.lengths import Windows
from semistream.windows.streams.match import JoinOn, on_pairs

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_DELAY = "spark.watermarkDelayMs"  # in the metadata of a column that has a watermark
_POOL = "SEMISTREAM_WINDOW_JOIN"
_SECRET = token_bytes(32)  # of this driver: a query that it starts again finds its operators


def window_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: JoinOn,
    window: Windows,
    memory: Memory,
    policy: str | Policy = "prob",
    allocation: Allocation = "fixed",
    partitions: int | None = None,
    archive: str | Path | None = None,
    late: str | Path | None = None,
    suffix: str = "_right",
    max_waiting: int = 10_000_000,
    name: str = "window_join",
) -> DataFrame:
    """Join two streaming DataFrames with watermarks within windows of time, in a memory that may be too small.

    Rows are a result if their keys are equal and ``0 <= l.time - r.time < right window`` or ``0 <= r.time - l.time <
    left window``; times are the columns that have the watermarks. The result is exact while the memory holds the
    windows. Below that the rows stay that will produce most, by the ``policy`` (WINDOW 4.2), and what comes out is a
    subset of the exact result: which one depends on the rows and the watermarks, not on the sizes of micro-batches (if
    rows of one instant of a stream come in the same order).

    A row is joined when the watermark has passed it, in the order of event times: results are as late as the delay of
    the watermark says. Rows that come when it had passed them are counted, and written to ``late`` if that is given.
    Spark filters nothing out before.

    **Restarts are exact.** Rows are dealt out by key to ``partitions``; the state of each is kept by
    `transformWithState` in RocksDB: a snapshot, and the rows that came since (`semistream.spark.window_log`), with
    frequencies and counts. A query that is killed anywhere goes on from its checkpoint as if nothing had happened. It
    must be started with the same arguments; others are refused.

    Parameters
    ----------
    left, right
        Streams of one session, each with `withWatermark` on a column of timestamps.
    on
        A column, several, or a mapping from left to right columns, which must be equal. Null keys match nothing.
    window
        How long rows live: a timedelta or text such as ``"5 minutes"``, for both streams or ``{"left": ...,
        "right": ...}``. That of the left says how long left rows live.
    memory
        Rows that are kept, of all partitions together: a number, ``{"left": ..., "right": ...}``, or as text bytes such
        as ``"64MB"``; None for no limit. Each partition has an equal part of it. Rows that wait for the watermark are
        not in it. It is in the Python workers, each partition in one of them.
    policy, allocation
        Who leaves, and whether each stream has half of the memory: as in `semistream.windows.WindowJoin`.
    partitions
        Key partitions; by default, and best, as many as the query has tasks (``spark.sql.shuffle.partitions``).
    archive
        A folder that all workers see. Rows go there when they leave, as Parquet files of a micro-batch and a partition,
        each once; `repair_window_join` gives the missing results.
    late
        A folder for rows that came late, or without a time, in files of the same kind.
    suffix
        For names of right columns that the left stream has too.
    max_waiting
        Rows of a partition that may wait for the watermark before the query is stopped: one stream may be silent.
    name
        Of the counts in Spark's progress reports (`window_metrics`); two joins in one query need two.

    >>> joined = window_join(
    ...     clicks.withWatermark("at", "10 seconds"), orders.withWatermark("at", "10 seconds"),
    ...     on="user", window={"left": "30 minutes", "right": "1 minute"}, memory="256MB",
    ... )  # doctest: +SKIP

    References
    ----------
    WINDOW 4.2 (policies), 2.2 (archives: semantic load smoothing).
    """
    frames = dict(zip(SIDES, (require_classic(left), require_classic(right)), strict=True))
    times = {side: _time_column(side, df) for side, df in frames.items()}
    spark = left.sparkSession
    _require_rocksdb(spark)
    count = partition_count(int(spark.conf.get("spark.sql.shuffle.partitions")) if partitions is None else partitions)
    plan = WindowPlan(
        left=arrow_schema_of(left),
        right=arrow_schema_of(right),
        on=on_pairs(on),
        times=times,
        window=dict(window) if isinstance(window, Mapping) else window,
        memory=share_of(memory, count),
        policy=policy,
        allocation=allocation,
        suffix=suffix,
        groups=group_numbers(count),
        max_waiting=whole_number("max_waiting", max_waiting, least=1),
        archive=None if archive is None else str(Path(archive).absolute()),
        late=None if late is None else str(Path(late).absolute()),
        secret=_SECRET,
    ).validated(memory)
    if plan.archive is not None:
        begin_archive(plan)
    with worker_interpreter(spark):
        packed = _pack(plan, 0, left).union(_pack(plan, 1, right))
        with _own_workers(spark, plan):
            kept = packed.groupBy("group").transformWithStateInPandas(
                WindowProcessor(plan), outputStructType=OUTPUT, outputMode="append", timeMode="EventTime"
            )
        results = observed(kept, name).where(sf.col(RESULTS).isNotNull()).select(RESULTS)
        return results.mapInArrow(partial(_unpack, plan), from_arrow_schema(plan.schema))


def _pack(plan: WindowPlan, side: int, df: DataFrame) -> DataFrame:
    # By position: mapInArrow cannot take columns whose names have a dot or a backtick in them.
    numbered = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    return numbered.mapInArrow(partial(_packed, plan, side), from_arrow_schema(PACKED))


def _packed(plan: WindowPlan, side: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return pack_rows(plan, side, batches)


def _unpack(plan: WindowPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return unpack_rows(plan, batches)


@contextmanager
def _own_workers(spark: SparkSession, plan: WindowPlan) -> Iterator[None]:
    """Functions given to Spark within the block have Python workers that nobody else uses.

    Spark takes any idle worker with the same environment. Those that pack and unpack rows are not to be among those
    that have operators: they would be as many again, and take turns.
    """
    environment: dict[str, Any] = spark.sparkContext.environment
    environment[_POOL] = plan.fingerprint
    try:
        yield
    finally:
        del environment[_POOL]


def _time_column(side: str, df: DataFrame) -> str:
    """The column that has the watermark."""
    if not df.isStreaming:
        raise InvalidArgument(
            f"the {side} DataFrame is not a stream; window_join joins two streams (spark.readStream). For tables, "
            "write the windows as a condition of an ordinary join, or use semistream.windows.WindowJoin."
        )
    marked = [field for field in df.schema if _DELAY in field.metadata]
    if len(marked) != 1:
        found = f"has watermarks on {', '.join(field.name for field in marked)}" if marked else "has no watermark"
        raise InvalidArgument(
            f"the {side} stream {found}; give it one: {side}.withWatermark('time', '10 seconds'), with its column of "
            "event times and how long rows may be delayed."
        )
    if marked[0].dataType.typeName() not in ("timestamp", "timestamp_ntz"):
        raise InvalidArgument(
            f"the watermark of the {side} stream is on {marked[0].name!r}, a {marked[0].dataType.simpleString()}; put "
            "it on a column of timestamps, before windows are made of them."
        )
    return str(marked[0].name)


def _require_rocksdb(spark: SparkSession) -> None:
    provider = spark.conf.get(_PROVIDER, "")
    if not str(provider).endswith(".RocksDBStateStoreProvider"):
        raise InvalidArgument(
            f"the state store is {provider or 'the default'}, which transformWithState cannot use. Before the query "
            f"starts: spark.conf.set({_PROVIDER!r}, {_ROCKSDB!r})"
        )
