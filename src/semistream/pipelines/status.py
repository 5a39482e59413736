"""Progress of a pipeline, read from its checkpoint alone, also while the pipeline runs."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.overload.loss_report import Missing

METRICS = "metrics.jsonl"
"""File in the checkpoint folder with one JSON line per batch."""
SHOWN = ("batch", "rows_in", "joined", "unmatched", "pending", "duplicate", "invalid", "shed", "seconds", "rows_per_s")
SHOWN_LATENCY = ("p50_s", "p95_s", "p99_s", "goal_s")
"""Numbers in a line of the metrics file that `semistream status` shows."""
MOST_BYTES = 16 << 20
"""Size at which a file of lines becomes the old one, and a new one is begun."""
_RECENT = 5
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class PipelineState:
    """Progress of a pipeline: its last done batch, its unfinished batch and stage, and its waiting and shed rows.

    ``waiting_since`` is when the oldest waiting row entered, in seconds since 1970. ``missing`` covers rows shed and
    not yet repaired. ``recent`` has the last lines of the metrics file.
    """

    last_batch: int | None
    unfinished: int | None
    stage: str
    waiting_rows: int
    waiting_since: float | None
    missing: Missing
    recent: list[dict[str, Any]]


def pipeline_state(checkpoint: Path, name: str) -> PipelineState:
    """Read the state of a pipeline from its checkpoint folder."""
    ledger = Ledger.read(checkpoint, name)
    plan, waiting = ledger.open_plan, ledger.waiting
    stage = ""
    if plan is not None:
        staged = ledger.staged(plan.batch)
        prepared = ledger.prepared(plan.batch) is not None
        stage = "written, not committed" if prepared else f"in phase {len(staged) + 1}" if staged else "planned"
        if stage == "planned" and ledger.shed(plan.batch) is not None:
            stage = "planned, will shed some of its rows"
    return PipelineState(
        last_batch=ledger.last_done,
        unfinished=None if plan is None else plan.batch,
        stage=stage,
        waiting_rows=sum(file.rows for file in waiting),
        waiting_since=min((file.since for file in waiting), default=None),
        missing=Missing.of(ledger.archived),
        recent=recent_lines(checkpoint / METRICS),
    )


def append_line(path: Path, line: str) -> None:
    """Append a line to a file; a file that has grown large is kept beside it, and the one kept before goes."""
    if path.exists() and path.stat().st_size >= MOST_BYTES:
        path.replace(_older(path))
    with path.open("a") as file:
        file.write(f"{line}\n")


def recent_lines(path: Path) -> list[dict[str, Any]]:
    """Return the last lines of the metrics file, without a half-written one or one that is not ours."""
    lines: list[str] = []
    for each in (_older(path), path):
        if each.exists():
            with each.open("rb") as file:
                file.seek(max(each.stat().st_size - _TAIL_BYTES, 0))
                lines += file.read().decode(errors="replace").splitlines()
    found = []
    for line in lines[-_RECENT:]:
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            read = json.loads(line)
            overload = read.get("overload")
            numbers = [value for name, value in read.items() if name in SHOWN]
            numbers += [] if overload is None else [overload[name] or 0 for name in SHOWN_LATENCY]
            if all(isinstance(number, int | float) for number in numbers):
                found.append(read)
    return found


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")
