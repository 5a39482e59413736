"""Live progress of a running pipeline on the terminal, and signals that stop it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from rich.live import Live
from rich.table import Table

from semistream.budget import format_bytes
from semistream.cli.output import facts, messages
from semistream.cli.pipeline.pipeline_reports import PipelineRun, between

if TYPE_CHECKING:
    from semistream.pipelines.batch.batch_report import BatchReport
    from semistream.pipelines.overload.loss_report import OverloadReport


class PipelineProgress:
    """Live table of the rows by outcome and of the last batch; silent if stderr is not a terminal."""

    def __init__(self, name: str, memory: str | int, total: PipelineRun) -> None:
        self._name, self._total = name, total
        self._memory = memory if isinstance(memory, str) else format_bytes(memory)
        self._started = time.monotonic()
        self._last: BatchReport | None = None
        console = messages()
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=4, transient=True)
        self._shown = console.is_terminal

    def __enter__(self) -> Self:
        if self._shown:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._live.stop()

    def batch_done(self, report: BatchReport) -> None:
        """Add a finished batch to the totals and print its remarks."""
        self._last = report
        self._total.add(report)
        for remark in report.remarks:
            messages().print(f"batch {report.batch}: {remark}", soft_wrap=True)

    def _draw(self) -> Table:
        total, last = self._total, self._last
        elapsed = time.monotonic() - self._started
        rows: list[tuple[str, object]] = [
            ("running", f"{elapsed:,.0f} s, {total.batches:,} batches" if last else f"{elapsed:,.0f} s, no batch yet"),
            ("rows", f"{total.rows_in:,}, {total.rows_in / elapsed if elapsed else 0:,.0f} rows/s"),
            *((outcome, f"{count:,}") for outcome, count in total.outcomes.items() if count),
        ]
        return facts(*rows, *([] if last is None else self._of_last(last)), title=self._name)

    def _of_last(self, last: BatchReport) -> list[tuple[str, object]]:
        """Describe the last finished batch."""
        trigger = last.trigger
        rows: list[tuple[str, object]] = [
            ("last batch", f"{last.rows_in:,} rows in {last.seconds:.2f} s, {last.rows_per_s:,.0f} rows/s"),
            ("lag", _lag(last)),
            ("waiting", f"{last.waiting_rows:,} rows, the oldest for {last.oldest_wait_s:,.0f} s"),
            ("hit rate", f"{last.hit_rate:.1%} from memory"),
            ("memory", f"joins use {format_bytes(last.memory_bytes)} of {self._memory} in a worker"),
        ]
        if last.overload is not None:
            rows += _against_goal(last.overload)
        if trigger is not None:
            took = f"batch {trigger.source_batch} took {trigger.seconds:.2f} s in total"
            came = f", {trigger.input_rows_per_s:,.0f} rows/s arrived" if last.lag_s is None else ""
            rows.append(("Spark", took + came))
        return rows


def _against_goal(overload: OverloadReport) -> list[tuple[str, object]]:
    """Compare a batch's latency with its goal, and describe the rows still missing after it."""
    rows: list[tuple[str, object]] = []
    if overload.latencies is not None:
        p50, p95, p99 = overload.latencies
        rows.append(("latency", f"p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} s; goal {overload.goal_s:g} s"))
    rows.append(("shed", f"{overload.shed_rows:,} rows of the last batch, {overload.shed_share:.1%}"))
    missing = overload.missing
    if missing.rows:
        results = between(missing.results_low, missing.results_high)
        rows.append(
            (
                "to repair",
                f"{missing.rows:,} rows, the oldest for {overload.oldest_s:,.0f} s; {results} results missing",
            )
        )
    return rows


def _lag(last: BatchReport) -> str:
    """Describe how far the tables lag behind the source."""
    behind = None if last.trigger is None else last.trigger.behind
    if last.lag_s is not None:
        return f"{last.lag_s:,.1f} s from the arrival of its first file"
    if behind is not None:
        return f"{behind:,} messages behind"
    return f"{time.time() - last.at:,.1f} s since its rows were committed"


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into requests to stop; yield a function that returns True once one has arrived."""
    asked = False

    def ask(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second Ctrl-C does not wait for the batch
        asked = True
        messages().print("stopping after the current batch", soft_wrap=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
