"""JoinMetrics: counts of a join on Spark, from Spark's progress report of a micro-batch or an `Observation`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from semistream.pipelines.task.worker_joins import WorkerJoinCounts

COUNTS = "__semistream_counts"
"""Column of joined rows: null, but in one row of each task, which has its counts and nothing else."""


@dataclass(frozen=True)
class JoinMetrics:
    """Counts of a join for one micro-batch, over all tasks; made by `join_metrics`.

    Parameters
    ----------
    rows_in, matched : int
        Rows of the stream, and those with a match in R.
    cache_hits : int
        Rows answered from the cache of the operator.
    bytes_read : int
        Bytes of R that were read.
    peak_bytes : int
        The most memory that the operators of all tasks used, in bytes.
    seconds : float
        Time that tasks took, added up.
    tasks : int
        Tasks with rows.

    Examples
    --------
    >>> JoinMetrics(rows_in=10, matched=9, cache_hits=4, bytes_read=65536, peak_bytes=400_000, seconds=0.1, tasks=2)
    JoinMetrics(rows_in=10, matched=9, cache_hits=4, bytes_read=65536, peak_bytes=400000, seconds=0.1, tasks=2)

    References
    ----------
    FRONT 2 (hit rate); docs/cluster.md, "Watch a join".
    """

    rows_in: int
    matched: int
    cache_hits: int
    bytes_read: int
    peak_bytes: int
    seconds: float
    tasks: int

    @property
    def hit_rate(self) -> float:
        """Share of the rows that were answered from the cache."""
        return self.cache_hits / self.rows_in if self.rows_in else 0.0


NAMES = tuple(field.name for field in fields(JoinMetrics))


def task_counts(before: WorkerJoinCounts, after: WorkerJoinCounts, seconds: float) -> list[int]:
    """Return the counts of a task, in the order of `NAMES`, with microseconds for seconds."""
    grown = [getattr(after, name) - getattr(before, name) for name in NAMES[:4]]
    return [*grown, after.peak_bytes, round(seconds * 1e6), 1]


def observed(df: DataFrame, name: str) -> DataFrame:
    """Return the rows without the counts; Spark reports the sums of these under ``name``."""
    sums = [sf.sum(sf.col(COUNTS)[place]).alias(each) for place, each in enumerate(NAMES)]
    return df.observe(name, *sums).where(sf.col(COUNTS).isNull()).drop(COUNTS)


def join_metrics(progress: Any) -> dict[str, JoinMetrics]:
    """Read the counts of all joins of a query from Spark's report of a micro-batch.

    Parameters
    ----------
    progress : StreamingQueryProgress
        A report: from ``query.lastProgress`` or ``query.recentProgress``, or ``event.progress`` of a
        `StreamingQueryListener`.

    Returns
    -------
    dict of str to JoinMetrics
        The counts by the name of the join; without joins that had no rows.

    Examples
    --------
    Here a stand-in for ``query.lastProgress``:

    >>> from types import SimpleNamespace
    >>> counts = {**dict.fromkeys(NAMES, 1), "rows_in": 8, "cache_hits": 6}
    >>> found = join_metrics(SimpleNamespace(observedMetrics={"products": counts}))
    >>> found["products"].hit_rate
    0.75

    References
    ----------
    docs/cluster.md, "Watch a join".
    """
    found = {}
    for name, row in progress.observedMetrics.items():
        counts = row if isinstance(row, dict) else row.asDict()
        if set(NAMES) <= set(counts) and counts["tasks"]:
            numbers: dict[str, Any] = {each: int(counts[each]) for each in NAMES}
            found[name] = JoinMetrics(**{**numbers, "seconds": numbers["seconds"] / 1e6})
    return found
