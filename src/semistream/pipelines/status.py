"""Progress of a pipeline, read from its checkpoint alone, also while the pipeline runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.overload.loss_report import Missing

METRICS = "metrics.jsonl"
"""File in the checkpoint folder with one JSON line per batch."""
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


def recent_lines(path: Path) -> list[dict[str, Any]]:
    """Return the last lines of the metrics file, without a half-written one."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        lines = file.read().decode(errors="replace").splitlines()[-_RECENT:]
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
