"""WindowProcessor: what Spark calls for each key partition in every micro-batch; it joins, and keeps the state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, DoubleType, LongType, StructField, StructType

from semistream.errors import InvalidArgument
from semistream.etl.faults import reached
from semistream.spark.window_archive import write_rows
from semistream.spark.window_log import LogEntry, LogHeader, WindowLog
from semistream.spark.window_metrics import COLUMNS, ESTIMATE, partition_counts
from semistream.spark.window_operators import WINDOW_JOINS, KeptJoin, WindowJoins
from semistream.spark.window_packing import write_message
from semistream.spark.window_plan import WindowPlan

RESULTS = "results_packed"
OUTPUT = StructType(
    [
        *(StructField(name, LongType()) for name in COLUMNS),
        StructField(ESTIMATE, DoubleType()),
        StructField(RESULTS, BinaryType()),
    ]
)
"""What comes out: packed results with zeros for all counts, and then a row of counts without results."""

_NOTHING = {**dict.fromkeys(COLUMNS, 0), ESTIMATE: None}


class WindowProcessor(StatefulProcessor):  # type: ignore[misc]
    """Joins what a micro-batch brings a key partition.

    The state store has all that it takes to go on (`WindowLog`). The operator itself stays in the worker between
    micro-batches, and is checked against the store before it is used (`WindowJoins`). Everything that is given out
    depends on the state and on the rows only, in an order that Spark's shuffles cannot change: a task or a query that
    is started again gives the same.
    """

    def __init__(self, plan: WindowPlan, joins: WindowJoins = WINDOW_JOINS) -> None:
        self._plan = plan
        self._joins = joins

    def __reduce__(self) -> tuple[type[WindowProcessor], tuple[WindowPlan]]:
        return WindowProcessor, (self._plan,)  # workers have operators of their own

    def init(self, handle: Any) -> None:
        """Spark's handle to the state is there."""
        self._handle = handle
        self._log = WindowLog(handle)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Rows have come for a key partition, packed, or at least word that there are none."""
        packed = pd.concat(list(rows)).sort_values(["side", "task", "number"])
        messages = [
            (int(side), bytes(content))
            for side, content in zip(packed["side"], packed["rows"], strict=True)
            if content is not None
        ]
        yield from self._handle_batch(int(key[0]), messages, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(  # noqa: N802
        self, key: Any, timerValues: Any, expiredTimerInfo: Any  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """The watermark has moved; if rows came in this micro-batch too, that was seen to with them."""
        header = self._log.header()
        if header is not None and header.batch != _batch_number():
            yield from self._handle_batch(int(key[0]), [], timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        """Nothing is open."""

    def _handle_batch(self, group: int, messages: list[tuple[int, bytes]], watermark_ms: int) -> Iterator[pd.DataFrame]:
        plan, query, batch = self._plan, _query(), _batch_number()
        stored = self._log.header()
        header = stored or LogHeader(json.dumps(plan.description))
        plan.require_same(header.plan)
        taken = self._joins.take(plan, query, group, header, self._log)
        kept, before = taken.kept, taken.kept.stats()
        entry = LogEntry(messages, watermark_ms, before=header.stamp)
        for results in kept.apply(plan, entry):
            yield _output(_NOTHING, write_message(results))
        self._require_progress(kept)
        reached("in a window batch")
        self._write_out(kept, query, group, batch)
        kept.stamp, kept.next = uuid4().hex, header.next + 1
        if self._log.wants_snapshot(header, entry):
            after = self._log.replace(header, kept.written(), kept.stamp, batch)
        else:
            after = self._log.append(header, entry, kept.stamp, batch)
        # Called again as soon as the watermark moves, also if no rows come.
        self._handle.registerTimer(max(watermark_ms, 0) + 1)
        stats = kept.stats()
        counts = partition_counts(before, stats) | {
            "state_bytes": after.state_bytes,
            "replayed": taken.replayed,
            "restored": int(taken.restored),
        }
        reached("after a window batch")
        self._joins.put(plan, query, group, kept)
        yield _output({**counts, ESTIMATE: stats.missing_estimate}, None)

    def _write_out(self, kept: KeptJoin, query: str, group: int, batch: int) -> None:
        """Rows that came late, and rows that have left, to their folders."""
        plan, partition = self._plan, self._plan.groups.index(group)
        departed = None if kept.departures is None else kept.departures.take()
        for side in range(2):
            late = kept.take_late(side)
            if plan.late is not None:
                write_rows(plan.late, query, side, partition, batch, late)
            if plan.archive is not None and departed is not None:
                write_rows(plan.archive, query, side, partition, batch, departed[side])

    def _require_progress(self, kept: KeptJoin) -> None:
        stats = kept.join.stats
        waiting = {"left": stats.left.waiting, "right": stats.right.waiting}
        if sum(waiting.values()) > self._plan.max_waiting:
            silent = min(waiting, key=lambda side: waiting[side])
            raise InvalidArgument(
                f"{sum(waiting.values())} rows of a key partition wait for the watermark (left {waiting['left']}, "
                f"right {waiting['right']}), more than max_waiting, {self._plan.max_waiting}: the {silent} stream is "
                "silent or far behind, and Spark's watermark is that of the slower one. Send rows there, set "
                "spark.sql.streaming.multipleWatermarkPolicy to max, or raise max_waiting."
            )


def _output(counts: dict[str, Any], results: bytes | None) -> pd.DataFrame:
    return pd.DataFrame([{**counts, RESULTS: results}], columns=OUTPUT.names)


def _property(name: str) -> str | None:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    return None if value is None else str(value)


def _batch_number() -> int:
    """The micro-batch at hand."""
    return int(_property("streaming.sql.batchId") or 0)


def _query() -> str:
    """The query at hand, by the id that its checkpoint keeps."""
    return _property("sql.streaming.queryId") or "batch"
