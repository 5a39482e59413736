"""WindowMetrics: counts of a window join on Spark, from Spark's progress report of a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from semistream.windows import WindowStats
from semistream.windows.streams.event_time import SIDES

_FLOWS = ("rows_in", "late", "null_keys", "expired", "evicted")  # counted over a micro-batch
_LEVELS = ("in_memory", "waiting")  # measured at its end


@dataclass(frozen=True)
class WindowMetrics:
    """Counts of a window join for one micro-batch, over all key partitions; made by `window_metrics`.

    No row goes uncounted: summed over micro-batches, ``rows_in`` equals late, null keys, expired and evicted rows, plus
    the rows in memory and waiting now.

    Parameters
    ----------
    batch : int
        Number of the micro-batch.
    left_rows_in, right_rows_in : int
        Rows that came in during the micro-batch.
    left_late, right_late : int
        Rows that came after the watermark had passed them, or without a time.
    left_null_keys, right_null_keys : int
        Rows with a null key, which match nothing.
    left_expired, right_expired : int
        Rows that left because their window was over.
    left_evicted, right_evicted : int
        Rows that left before, because the memory was full.
    left_in_memory, right_in_memory : int
        Rows in memory at the end of the micro-batch.
    left_waiting, right_waiting : int
        Rows that wait for the watermark at the end of the micro-batch.
    results : int
        Results of the micro-batch.
    missing_estimate : float or None
        Estimated results lost to evictions since the query began, by the policy's own probabilities; None if it has
        none (policy ``random``).
    state_bytes : int
        Bytes in the state store.
    partitions : int
        Key partitions that reported; all, once there were rows.
    restored : int
        Key partitions whose operator was rebuilt from the state store, because no worker had it.

    Examples
    --------
    >>> from dataclasses import fields
    >>> none = dict.fromkeys((field.name for field in fields(WindowMetrics)), 0)
    >>> WindowMetrics(**{**none, "left_rows_in": 7, "right_rows_in": 5}).rows_in
    12

    References
    ----------
    WINDOW 4.2 (policies); docs/windows.md, "On Spark".
    """

    batch: int
    left_rows_in: int
    right_rows_in: int
    left_late: int
    right_late: int
    left_null_keys: int
    right_null_keys: int
    left_expired: int
    right_expired: int
    left_evicted: int
    right_evicted: int
    left_in_memory: int
    right_in_memory: int
    left_waiting: int
    right_waiting: int
    results: int
    missing_estimate: float | None
    state_bytes: int
    partitions: int
    restored: int

    @property
    def rows_in(self) -> int:
        """Rows of both streams that came in."""
        return self.left_rows_in + self.right_rows_in

    @property
    def late(self) -> int:
        """Late rows of both streams."""
        return self.left_late + self.right_late

    @property
    def evicted(self) -> int:
        """Evicted rows of both streams."""
        return self.left_evicted + self.right_evicted

    @property
    def in_memory(self) -> int:
        """Rows of both streams in memory."""
        return self.left_in_memory + self.right_in_memory


COLUMNS = tuple(field.name for field in fields(WindowMetrics) if field.name not in ("batch", "missing_estimate"))
"""Integer counts that each key partition reports for a micro-batch."""

ESTIMATE = "missing_estimate"


def partition_counts(before: WindowStats, after: WindowStats) -> dict[str, int]:
    """Return the counts of a key partition's operator for the time between two snapshots of its statistics."""
    counts = {"results": after.results - before.results, "partitions": 1}
    for side in SIDES:
        then, now = getattr(before, side), getattr(after, side)
        counts |= {f"{side}_{name}": getattr(now, name) - getattr(then, name) for name in _FLOWS}
        counts |= {f"{side}_{name}": getattr(now, name) for name in _LEVELS}
    return counts


def observed(df: DataFrame, name: str) -> DataFrame:
    """Return the same rows; Spark reports the sums of their counts under ``name``."""
    sums: list[Column] = [sf.sum(column).alias(column) for column in COLUMNS]
    return df.observe(name, *sums, sf.sum(ESTIMATE).alias(ESTIMATE))


def window_metrics(progress: Any, name: str = "window_join") -> WindowMetrics | None:
    """Read the counts of a window join from Spark's progress report of a micro-batch.

    Parameters
    ----------
    progress : StreamingQueryProgress
        A report: from ``query.lastProgress`` or ``query.recentProgress``, or ``event.progress`` of a
        `StreamingQueryListener`.
    name : str
        Name of the join, if `window_join` was given one.

    Returns
    -------
    WindowMetrics or None
        The counts; None if the join did nothing in the micro-batch.

    Examples
    --------
    Here a stand-in for ``query.lastProgress``:

    >>> from types import SimpleNamespace
    >>> counts = {**dict.fromkeys(COLUMNS, 0), "left_evicted": 3, "right_evicted": 1, "missing_estimate": 2.5}
    >>> found = window_metrics(SimpleNamespace(batchId=7, observedMetrics={"window_join": counts}))
    >>> found.batch, found.evicted, found.missing_estimate
    (7, 4, 2.5)

    References
    ----------
    docs/windows.md, "On Spark".
    """
    told = progress.observedMetrics.get(name)
    if told is None or told["partitions"] is None:
        return None
    counts = {column: int(told[column]) for column in COLUMNS}
    return WindowMetrics(batch=progress.batchId, missing_estimate=told[ESTIMATE], **counts)
