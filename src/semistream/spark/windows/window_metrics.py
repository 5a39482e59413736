"""WindowMetrics: what a window join on Spark did in a micro-batch, as Spark's progress reports tell it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from semistream.windows import WindowStats
from semistream.windows.streams.event_time import SIDES

_FLOWS = ("rows_in", "late", "null_keys", "expired", "evicted")  # of a micro-batch
_LEVELS = ("in_memory", "waiting")  # at its end


@dataclass(frozen=True)
class WindowMetrics:
    """Counts of one micro-batch over all key partitions, by side: rows that came in, and what became of rows.

    ``late`` came after the watermark had passed them, or without a time; ``null_keys`` match nothing; ``expired`` left
    their window, ``evicted`` left the memory before. ``in_memory`` and ``waiting`` (for the watermark) are what is held
    at the end of the micro-batch. All that has come in up to then is in one of these: added up over micro-batches,
    ``rows_in`` is late, null keys, expired and evicted, and what is held now.

    ``results`` came out. ``missing_estimate`` is how many results evictions have cost since the query began, by the
    policy's own probabilities; None if these are not known (policy ``random``). ``state_bytes`` are in the state store.
    ``partitions`` have reported: all, once there was data. ``restored`` ones were made from the state store, since no
    worker had their operator.
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
        """Of both sides."""
        return self.left_rows_in + self.right_rows_in

    @property
    def late(self) -> int:
        """Of both sides."""
        return self.left_late + self.right_late

    @property
    def evicted(self) -> int:
        """Of both sides."""
        return self.left_evicted + self.right_evicted

    @property
    def in_memory(self) -> int:
        """Of both sides."""
        return self.left_in_memory + self.right_in_memory


COLUMNS = tuple(field.name for field in fields(WindowMetrics) if field.name not in ("batch", "missing_estimate"))
"""The whole numbers that each key partition gives in a micro-batch."""

ESTIMATE = "missing_estimate"


def partition_counts(before: WindowStats, after: WindowStats) -> dict[str, int]:
    """The counts of one key partition's operator between two moments."""
    counts = {"results": after.results - before.results, "partitions": 1}
    for side in SIDES:
        then, now = getattr(before, side), getattr(after, side)
        counts |= {f"{side}_{name}": getattr(now, name) - getattr(then, name) for name in _FLOWS}
        counts |= {f"{side}_{name}": getattr(now, name) for name in _LEVELS}
    return counts


def observed(df: DataFrame, name: str) -> DataFrame:
    """The same rows, whose counts Spark reports under ``name``."""
    sums: list[Column] = [sf.sum(column).alias(column) for column in COLUMNS]
    return df.observe(name, *sums, sf.sum(ESTIMATE).alias(ESTIMATE))


def window_metrics(progress: Any, name: str = "window_join") -> WindowMetrics | None:
    """What a window join did in the micro-batch of a progress report; None if it did nothing.

    A report is what ``query.lastProgress`` and ``query.recentProgress`` give, or ``event.progress`` in a
    `StreamingQueryListener`; ``name`` is that of the join, if it was given one.

    >>> [window_metrics(report).evicted for report in query.recentProgress]  # doctest: +SKIP
    [0, 1804, 2117]
    """
    told = progress.observedMetrics.get(name)
    if told is None or told["partitions"] is None:
        return None
    counts = {column: int(told[column]) for column in COLUMNS}
    return WindowMetrics(batch=progress.batchId, missing_estimate=told[ESTIMATE], **counts)
