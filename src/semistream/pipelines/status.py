"""How far a pipeline is, from its checkpoint alone: also while it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.overload.loss_report import Missing

METRICS = "metrics.jsonl"
"""The file in the checkpoint folder that has a JSON line for each batch."""
_RECENT = 5
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class PipelineState:
    """The last batch that is done, the one that is not and how far it is, the rows that wait, and what was shed.

    ``missing`` is what was shed and is not repaired.
    """

    last_batch: int | None
    unfinished: int | None
    stage: str
    waiting_rows: int
    waiting_since: float | None
    missing: Missing
    recent: list[dict[str, Any]]


def pipeline_state(checkpoint: Path, name: str) -> PipelineState:
    """The state of a pipeline."""
    ledger = Ledger.read(checkpoint, name)
    plan, waiting = ledger.open_plan, ledger.waiting
    stage = ""
    if plan is not None:
        staged = ledger.staged(plan.batch)
        prepared = ledger.prepared(plan.batch) is not None
        stage = "written, not committed" if prepared else f"in phase {len(staged) + 1}" if staged else "planned"
        if stage == "planned" and ledger.shed(plan.batch) is not None:
            stage = "planned, some of its rows to be shed"
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
    """The last lines of the file of metrics; one that is only half written is left out."""
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
