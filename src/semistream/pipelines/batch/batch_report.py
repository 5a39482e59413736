"""BatchReport: the result of a batch, for users and for the metrics file."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from semistream.errors import hidden, hidden_in
from semistream.pipelines.ledger.entries import BatchManifest, Plan
from semistream.pipelines.overload.loss_report import OverloadReport
from semistream.pipelines.status import METRICS, append_line

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trigger:
    """Spark's report of a source batch: its total ``seconds``, and ``parts_s`` by Spark's names of its parts.

    ``rows`` counts what Spark reads; of a folder it reads only file names, so there it counts files. ``behind`` is the
    number of Kafka messages not read yet, if Spark reports it.
    """

    source_batch: int
    at: str
    seconds: float
    rows: int
    input_rows_per_s: float
    processed_rows_per_s: float
    parts_s: dict[str, float] = field(default_factory=dict)
    behind: int | None = None

    @classmethod
    def of(cls, progress: Any) -> Trigger:
        """Build from Spark's progress report of a batch."""
        parts = {name: round(ms / 1000, 3) for name, ms in progress.durationMs.items()}
        behind = [each.metrics.get("maxOffsetsBehindLatest") for each in progress.sources if each.metrics]
        known = [int(float(each)) for each in behind if each is not None]
        return cls(
            source_batch=progress.batchId,
            at=progress.timestamp,
            seconds=parts.get("triggerExecution", 0.0),
            rows=progress.numInputRows,
            input_rows_per_s=_finite(progress.inputRowsPerSecond),
            processed_rows_per_s=_finite(progress.processedRowsPerSecond),
            parts_s=parts,
            behind=max(known, default=None),
        )


@dataclass(frozen=True, repr=False)
class BatchReport:
    """Report of a finished batch: rows by outcome, duration, and the resources used.

    ``waiting_rows`` wait after the batch, the oldest for ``oldest_wait_s`` seconds. A ``replayed`` batch was computed
    before this process started, and only committed by it. ``memory_bytes`` is the most that the joins of a worker have
    used. ``lag_s`` is the time from the arrival of the batch's first file until its rows were in their tables.
    ``trigger`` is the latest batch that Spark has reported, usually the previous one. ``overload`` is set under a
    latency goal. ``parts_s`` has the driver's seconds by part.
    """

    pipeline: str
    batch: int
    source_batch: int | None
    at: float
    rows_in: int
    outcomes: dict[str, int]
    seconds: float
    replayed: bool
    waiting_rows: int
    oldest_wait_s: float
    hit_rate: float
    memory_bytes: int
    bytes_read: int
    versions: dict[str, int]
    counts: dict[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    lag_s: float | None = None
    trigger: Trigger | None = None
    overload: OverloadReport | None = None
    parts_s: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        pipeline: str,
        source_batch: int | None,
        manifest: BatchManifest,
        *,
        at: float,
        seconds: float,
        replayed: bool,
        versions: dict[str, int],
        remarks: tuple[str, ...],
        lag_s: float | None = None,
        trigger: Trigger | None = None,
        overload: OverloadReport | None = None,
        parts_s: dict[str, float] | None = None,
    ) -> BatchReport:
        """Build the report of a finished batch."""
        work = manifest.work
        looked_up = work.counts.get("join_rows_in", 0)
        return cls(
            pipeline=pipeline,
            batch=manifest.batch,
            source_batch=source_batch,
            at=at,
            rows_in=work.rows_in,
            outcomes=work.outcomes,
            seconds=seconds,
            replayed=replayed,
            waiting_rows=sum(file.rows for file in manifest.waiting),
            oldest_wait_s=max((at - file.since for file in manifest.waiting), default=0.0),
            hit_rate=work.counts.get("join_cache_hits", 0) / looked_up if looked_up else 0.0,
            memory_bytes=work.peaks.get("join_bytes", 0),
            bytes_read=work.counts.get("join_bytes_read", 0),
            versions=versions,
            counts={name: count for name, count in work.counts.items() if not name.startswith("join_")},
            remarks=remarks,
            lag_s=lag_s,
            trigger=trigger,
            overload=overload,
            parts_s=parts_s or {},
        )

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{rows:,} {outcome}" for outcome, rows in self.outcomes.items() if rows) or "no rows"
        waiting = f", {self.waiting_rows:,} waiting" if self.waiting_rows else ""
        rows = f"{self.rows_in:,} rows in {self.seconds:.2f} s"
        return f"BatchReport({self.pipeline} {self.batch}: {rows}; {outcomes}{waiting})"

    @property
    def rows_per_s(self) -> float:
        """Rows per second of the batch."""
        return self.rows_in / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the content of a line of the metrics file."""
        return {
            "pipeline": self.pipeline,
            "batch": self.batch,
            "source_batch": self.source_batch,
            "at": round(self.at, 3),
            "rows_in": self.rows_in,
            **self.outcomes,
            "seconds": round(self.seconds, 3),
            "parts_s": {name: round(seconds, 4) for name, seconds in self.parts_s.items()},
            "rows_per_s": round(self.rows_per_s, 1),
            "replayed": self.replayed,
            "waiting_rows": self.waiting_rows,
            "oldest_wait_s": round(self.oldest_wait_s, 3),
            "lag_s": None if self.lag_s is None else round(self.lag_s, 3),
            "hit_rate": round(self.hit_rate, 4),
            "memory_bytes": self.memory_bytes,
            "bytes_read": self.bytes_read,
            "versions": self.versions,
            "counts": self.counts,
            "remarks": list(self.remarks),
            "last_trigger": None if self.trigger is None else asdict(self.trigger),
            **({} if self.overload is None else {"overload": self.overload.as_dict()}),
        }


class BatchReporter:
    """Reporter of finished batches, to the log, the metrics file and the ``watch`` callback."""

    def __init__(
        self, pipeline: str, folder: Path, watch: Callable[[BatchReport], None], clock: Callable[[], float]
    ) -> None:
        self._pipeline, self._file, self._watch, self._clock = pipeline, folder / METRICS, watch, clock

    def report(
        self,
        plan: Plan,
        manifest: BatchManifest,
        *,
        seconds: float,
        replayed: bool,
        remarks: Sequence[str],
        trigger: Trigger | None,
        overload: OverloadReport | None,
        parts_s: dict[str, float],
    ) -> None:
        """Report a finished batch."""
        now = self._clock()
        report = BatchReport.of(
            self._pipeline,
            plan.source_batch,
            manifest,
            at=now,
            seconds=seconds,
            replayed=replayed,
            versions=plan.versions,
            remarks=tuple(remarks),
            lag_s=_lag_s(plan.files, now),
            trigger=trigger,
            overload=overload,
            parts_s=parts_s,
        )
        for remark in remarks:
            _LOG.warning("batch %d: %s", plan.batch, hidden(remark))
        append_line(self._file, json.dumps(hidden_in(report.as_dict())))
        self._watch(report)


def _lag_s(files: Sequence[str], now: float) -> float | None:
    """Return the seconds since the first of the files arrived; None if no file is left."""
    times = []
    for file in files:
        with suppress(OSError):
            times.append(Path(file).stat().st_mtime)
    return max(now - min(times), 0.0) if times else None


def reason_of(error: Exception) -> str:
    """Return the message of semistream's own error, raised on the driver or in a worker.

    Without one, return Spark's own reason, which begins with its name in brackets, or else the first line.
    """
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    traced = [
        line
        for line in lines
        if re.match(r"(semistream\.)?[\w.]+(Error|Exception|Argument|Locked|Running|NotFound|Relation): ", line)
    ]
    own = [line for line in traced if line.startswith("semistream.")]
    java = [found[1] for line in lines if (found := re.match(r": [\w.$]+: (\[[A-Z0-9_.]+\] .*)", line))]
    if java and not own:
        return java[-1]
    if own or traced:
        return (own or traced)[-1].partition(": ")[2]
    return lines[0] if lines else type(error).__name__


def _finite(rate: float) -> float:
    """Round one of Spark's rates; 0 for NaN or infinity, which Spark gives if no time has passed."""
    return round(rate, 1) if 0 <= rate < float("inf") else 0.0
