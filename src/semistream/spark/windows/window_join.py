"""window_join() on Spark: join two streaming DataFrames within a window, in less memory than the window needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument
from semistream.spark.arrow_types import arrow_schema_of
from semistream.spark.session import require_classic, worker_interpreter
from semistream.spark.sql_rules import require_binary_collation
from semistream.spark.windows.archive_files import begin_archive
from semistream.spark.windows.key_partitions import group_numbers
from semistream.spark.windows.packed_rows import PACKED, pack_rows, unpack_rows
from semistream.spark.windows.processor import OUTPUT, RESULTS, WindowProcessor
from semistream.spark.windows.window_metrics import observed
from semistream.spark.windows.window_plan import WindowPlan, partition_count, share_of
from semistream.storage.local_paths import local_path
from semistream.windows import Policy
from semistream.windows.join.capacity import Allocation, Memory
from semistream.windows.streams.event_time import SIDES
from semistream.windows.streams.lengths import Windows
from semistream.windows.streams.window_match import JoinOn, on_pairs

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_DELAY = "spark.watermarkDelayMs"  # in the metadata of a column with a watermark
_POOL = "SEMISTREAM_WINDOW_JOIN"
_SECRET = token_bytes(32)  # one per driver, so that a restarted query finds its operators


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
    """Join two streaming DataFrames with watermarks within windows of time, in memory that may be too small for them.

    Two rows are a result if their keys are equal and ``0 <= l.time - r.time < right window`` or ``0 <= r.time - l.time
    < left window``. Times are the columns with the watermarks. The result is exact while the memory holds the windows.
    Otherwise the ``policy`` keeps the rows expected to produce the most results (WINDOW 4.2), and the output is a
    subset of the exact result. This subset depends on the rows and the watermarks, not on the sizes of micro-batches,
    provided that rows of one instant of a stream come in the same order.

    A row is joined once the watermark has passed it, in the order of event times, so results are delayed by the delay
    of the watermark. Spark drops no late rows here: they are counted, and written to ``late`` if given.

    **Restarts are exact.** Rows are divided by key among ``partitions``. `transformWithState` keeps the state of each
    in RocksDB: a snapshot and the rows since, with frequencies and counts. A query killed at any point resumes from its
    checkpoint as if nothing had happened. Start it with the same arguments; others are refused.

    Parameters
    ----------
    left, right : DataFrame
        Streams of one session, each with `withWatermark` on a column of timestamps. The session needs the RocksDB
        state store, as in the example.
    on : str, sequence of str or mapping
        Columns that must be equal: one name, several, or a mapping from left to right columns. Null keys match
        nothing.
    window : timedelta, str or mapping
        Lifetime of rows, such as ``"5 minutes"``: one for both streams, or ``{"left": ..., "right": ...}``. The left
        window is the lifetime of left rows.
    memory : int, str, mapping or None
        The most rows kept in all partitions together: a number of rows, ``{"left": ..., "right": ...}``, bytes as text
        such as ``"64MB"``, or None for no limit. Each partition gets an equal share, in one Python worker. Rows that
        wait for the watermark do not count.
    policy : str or Policy
        Chooses the rows that leave when the memory is full, as in `semistream.windows.WindowJoin`.
    allocation : str
        ``"fixed"``: half of the memory for each stream; ``"variable"``: shared, as in `WindowJoin`.
    partitions : int, optional
        Key partitions; by default, and at best, the number of the query's tasks (``spark.sql.shuffle.partitions``).
    archive : str or Path, optional
        Folder for rows that leave the memory, accessible to all workers: a Parquet file for each micro-batch,
        partition and stream, with each row once. `repair_window_join` computes the missing results from it.
    late : str or Path, optional
        Folder for rows that come late or without a time, in files of the same kind.
    suffix : str
        Appended to the names of right columns that the left stream has too.
    max_waiting : int
        The most rows of a partition that may wait for the watermark. Beyond it the query fails, since one stream may
        be silent.
    name : str
        Name of the counts in Spark's progress reports (`window_metrics`). Two joins in one query need different names.

    Returns
    -------
    DataFrame
        A streaming DataFrame: the columns of both streams, without the right columns that ``on`` names.

    Examples
    --------
    >>> rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    >>> spark.conf.set("spark.sql.streaming.stateStore.providerClass", rocksdb)
    >>> clicks, orders = (spark.readStream.format("rate").load().withColumnRenamed("value", "user") for _ in range(2))
    >>> clicks, orders = (stream.withWatermark("timestamp", "10 seconds") for stream in (clicks, orders))
    >>> window = {"left": "30 minutes", "right": "1 minute"}
    >>> joined = window_join(clicks, orders, on="user", window=window, memory="256MB")
    >>> joined.isStreaming, joined.columns
    (True, ['timestamp', 'user', 'timestamp_right'])

    References
    ----------
    WINDOW 4.2 (policies), 2.2 (archives: semantic load smoothing); docs/windows.md, "On Spark".
    """
    frames = dict(zip(SIDES, (require_classic(left), require_classic(right)), strict=True))
    times = {side: _time_column(side, df) for side, df in frames.items()}
    spark = left.sparkSession
    _require_rocksdb(spark)
    count = partition_count(int(spark.conf.get("spark.sql.shuffle.partitions")) if partitions is None else partitions)
    pairs = on_pairs(on)
    for df, keys in ((left, pairs), (right, pairs.values())):
        for field in df.schema:
            if field.name in keys:
                require_binary_collation(field)
    plan = WindowPlan(
        left=arrow_schema_of(left),
        right=arrow_schema_of(right),
        on=pairs,
        times=times,
        window=dict(window) if isinstance(window, Mapping) else window,
        memory=share_of(memory, count),
        policy=policy,
        allocation=allocation,
        suffix=suffix,
        groups=group_numbers(count),
        max_waiting=whole_number("max_waiting", max_waiting, least=1),
        archive=None if archive is None else str(local_path(archive).absolute()),
        late=None if late is None else str(local_path(late).absolute()),
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
        return results.mapInArrow(partial(unpack_rows, plan), from_arrow_schema(plan.schema))


def _pack(plan: WindowPlan, side: int, df: DataFrame) -> DataFrame:
    # Named by position: mapInArrow rejects column names with a dot or a backtick.
    numbered = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    return numbered.mapInArrow(partial(pack_rows, plan, side), from_arrow_schema(PACKED))


@contextmanager
def _own_workers(spark: SparkSession, plan: WindowPlan) -> Iterator[None]:
    """Run Python functions passed to Spark within the block in a separate pool of workers.

    Spark gives a task any idle worker with the same environment. Tasks that pack and unpack rows must not take the
    workers that hold operators: there would be twice as many workers, and operators would move between them.
    """
    environment: dict[str, Any] = spark.sparkContext.environment
    environment[_POOL] = plan.fingerprint
    try:
        yield
    finally:
        del environment[_POOL]


def _time_column(side: str, df: DataFrame) -> str:
    """Return the name of the column with the watermark."""
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
            "it on a column of timestamps, before grouping them into windows."
        )
    return str(marked[0].name)


def _require_rocksdb(spark: SparkSession) -> None:
    provider = spark.conf.get(_PROVIDER, "")
    if not str(provider).endswith(".RocksDBStateStoreProvider"):
        raise InvalidArgument(
            f"the state store is {provider or 'the default'}, which transformWithState cannot use. Before the query "
            f"starts: spark.conf.set({_PROVIDER!r}, {_ROCKSDB!r})"
        )
