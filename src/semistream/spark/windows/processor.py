"""WindowProcessor: the `StatefulProcessor` that joins the rows of each key partition in every micro-batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, DoubleType, LongType, StructField, StructType

from semistream.pipelines.ledger.faults import reached
from semistream.spark.windows.archive_files import write_rows
from semistream.spark.windows.state_log import LogEntry, LogHeader, WindowLog
from semistream.spark.windows.window_metrics import COLUMNS, ESTIMATE
from semistream.spark.windows.window_plan import WindowPlan
from semistream.spark.windows.worker_homes import HOMES, Turn, TurnOutcome

RESULTS = "results_packed"
OUTPUT = StructType(
    [
        *(StructField(name, LongType()) for name in COLUMNS),
        StructField(ESTIMATE, DoubleType()),
        StructField(RESULTS, BinaryType()),
    ]
)
"""Output columns. Rows of packed results have zero counts; the last row has the counts and no results."""

_NOTHING = {**dict.fromkeys(COLUMNS, 0), ESTIMATE: None}


class WindowProcessor(StatefulProcessor):  # type: ignore[misc]
    """Processor that joins the rows of a key partition in each micro-batch.

    The state store holds everything needed to resume (`WindowLog`). The operator itself stays in a worker between
    micro-batches, and is checked against the store before use (`JoinHomes`). The output depends only on the state and
    the rows, which are sorted into an order that Spark's shuffles cannot change. A repeated task or query therefore
    gives the same output.
    """

    def __init__(self, plan: WindowPlan) -> None:
        self._plan = plan

    def init(self, handle: Any) -> None:
        """Open the log on Spark's handle to the state."""
        self._handle = handle
        self._log = WindowLog(handle)

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Join the packed rows of a key partition, of which there may be none."""
        packed = pd.concat(list(rows)).sort_values(["side", "task", "number"])
        messages = [
            (int(side), bytes(content))
            for side, content in zip(packed["side"], packed["rows"], strict=True)
            if content is not None
        ]
        yield from self._handle_batch(int(key[0]), messages, timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Advance a partition to the new watermark, unless `handleInputRows` has done so in this micro-batch."""
        header = self._log.header()
        if header is not None and header.batch != _batch_number():
            yield from self._handle_batch(int(key[0]), [], timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _handle_batch(self, group: int, messages: list[tuple[int, bytes]], watermark_ms: int) -> Iterator[pd.DataFrame]:
        plan, query, batch, log = self._plan, _query(), _batch_number(), self._log
        header = log.header() or LogHeader(json.dumps(plan.description))
        plan.require_same(header.plan)
        entry = LogEntry(messages, watermark_ms, before=header.stamp)
        turn = Turn(entry, header.next, stamp=uuid4().hex, snapshot=log.wants_snapshot(header, entry))
        results = HOMES.run(plan, query, group, header, log, turn)
        while True:
            try:
                yield _output(_NOTHING, next(results))
            except StopIteration as end:
                outcome: TurnOutcome = end.value
                break
        plan.require_progress(outcome.counts["left_waiting"], outcome.counts["right_waiting"])
        reached("in a window batch")
        self._write_out(outcome, query, group, batch)
        reached("before a window's state")
        if outcome.snapshot is None:
            after = log.append(header, entry, turn.stamp, batch)
        else:
            after = log.replace(header, outcome.snapshot, turn.stamp, batch)
        # Have Spark call again as soon as the watermark moves, even without rows.
        self._handle.registerTimer(max(watermark_ms, 0) + 1)
        reached("after a window batch")
        counts = {**outcome.counts, "state_bytes": after.state_bytes, "restored": int(outcome.restored)}
        yield _output({**counts, ESTIMATE: outcome.missing_estimate}, None)

    def _write_out(self, outcome: TurnOutcome, query: str, group: int, batch: int) -> None:
        """Write late rows and departed rows to their folders."""
        plan, partition = self._plan, self._plan.groups.index(group)
        for folder, rows in ((plan.late, outcome.late), (plan.archive, outcome.departed)):
            for side in range(2):
                if folder is not None:
                    write_rows(folder, query, side, partition, batch, rows[side])


def _output(counts: dict[str, Any], results: bytes | None) -> pd.DataFrame:
    return pd.DataFrame([{**counts, RESULTS: results}], columns=OUTPUT.names)


def _property(name: str) -> str | None:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    return None if value is None else str(value)


def _batch_number() -> int:
    """Return the number of the current micro-batch."""
    return int(_property("streaming.sql.batchId") or 0)


def _query() -> str:
    """Return the id of the current query, which its checkpoint keeps."""
    return _property("sql.streaming.queryId") or "batch"
