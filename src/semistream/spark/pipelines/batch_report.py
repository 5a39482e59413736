"""BatchReport: what became of a batch, for people and for the file of metrics."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from semistream.pipelines.ledger.entries import BatchManifest
from semistream.pipelines.overload.loss_report import OverloadReport
from semistream.spark.pipelines.listener import Trigger


@dataclass(frozen=True)
class BatchReport:
    """What became of a batch: rows by outcome, how long it took, and what it was worked with.

    ``waiting_rows`` wait after it; ``oldest_wait_s`` is how long the first of them has. If it was ``replayed``, the
    work was done before this process was started. ``memory_bytes`` is the most that joins have used in a worker.
    ``lag_s`` is how long after the first of the batch's files had come its rows were in their tables, and ``trigger``
    what Spark said of the last batch before that it had told of. ``overload`` is for pipelines with a goal for latency.
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
    ) -> BatchReport:
        """The report of a batch that is done."""
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
        )

    @property
    def rows_per_s(self) -> float:
        """Rows taken to their tables per second."""
        return self.rows_in / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """As a line of the file of metrics."""
        return {
            "pipeline": self.pipeline,
            "batch": self.batch,
            "source_batch": self.source_batch,
            "at": round(self.at, 3),
            "rows_in": self.rows_in,
            **self.outcomes,
            "seconds": round(self.seconds, 3),
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


def reason_of(error: Exception) -> str:
    """The line of semistream's own error, on the driver or in a worker, if it was one; else the first of Spark's."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    traced = [
        line
        for line in lines
        if re.match(r"(semistream\.)?[\w.]+(Error|Exception|Argument|Locked|Running|NotFound|Relation): ", line)
    ]
    own = [line for line in traced if line.startswith("semistream.")]
    if own or traced:
        return (own or traced)[-1].partition(": ")[2]
    return lines[0] if lines else type(error).__name__
