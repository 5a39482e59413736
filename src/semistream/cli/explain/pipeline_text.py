"""Explanation of a pipeline as text and JSON: a table of its joins, and what would change each choice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from semistream.budget import format_bytes
from semistream.cli.output import Report, facts, size
from semistream.spark.planning.explain import PipelineExplanation, StepExplanation
from semistream.tuning.wording import described, rate_text


@dataclass(frozen=True)
class ExplainedPipeline(Report):
    """Explanation of a pipeline, and its file."""

    file: str
    explanation: PipelineExplanation

    def plain(self) -> dict[str, Any]:
        found = self.explanation
        return {
            "pipeline": found.pipeline,
            "file": self.file,
            "slots": found.slots,
            "batch_rows": found.batch_rows,
            "memory_bytes": found.memory_bytes,
            "total_memory_bytes": found.total_memory_bytes,
            "route": found.route,
            "rows_per_s": _number(found.rate),
            "rows_per_s_with_route_range": _number(found.routed_rate),
            "steps": [_plain_step(step) for step in found.steps],
        }

    def text(self) -> RenderableType:
        found = self.explanation
        shown: list[RenderableType] = [
            facts(
                ("workers", f"{found.slots} task slots, micro-batches of {found.batch_rows:,} rows"),
                (
                    "memory",
                    f"{size(found.memory_bytes)} in each worker, {format_bytes(found.total_memory_bytes)} in all",
                ),
                (
                    "rate",
                    _rate(found.rate, "no relation has rows yet", " through all joins, excluding Spark's own work"),
                ),
                *_routing(found),
                *_machine(found),
                title=found.pipeline,
            ),
            "",
            _steps(found),
        ]
        for number, step in enumerate(found.steps):
            worker = found.worker(number)
            if worker is not None and worker.changes:
                title = f"what would change the choice for {step.step}, in each worker"
                shown += ["", Text(title, style="bold"), *worker.changes]
        return Group(*shown)


def _plain_step(step: StepExplanation) -> dict[str, Any]:
    found = step.explanation
    return {
        "step": step.step,
        "relation": str(step.relation),
        "operator": step.operator,
        "note": step.note,
        "rows_per_s": None if found is None else _number(found.rate),
        "rows_per_s_with_route_range": None if found is None else _number(found.routed_rate),
        "worker": None if found is None else found.worker.as_dict(),
    }


def _routing(found: PipelineExplanation) -> list[tuple[str, object]]:
    """Describe the effect of ``route: range``, which sends each row to the worker that owns its key."""
    first = found.steps[0].explanation
    if first is None:
        return [
            (
                "route: range",
                f"not known for the first step, {found.steps[0].step}: {found.steps[0].note}",
            )
        ]
    part = f"each worker reads and caches {1 / found.slots:.0%} of {found.steps[0].step}, at the cost of a shuffle"
    if found.route == "range":
        return [("route: range", f"on: {part}")]
    return [("route: range", f"would give {_rate(found.routed_rate, '-')}: {part}")]


def _machine(found: PipelineExplanation) -> list[tuple[str, object]]:
    for step in found.steps:
        if step.explanation is not None:
            return [("machine", step.explanation.worker.machine_text.replace("--on R", f"--on {step.relation}"))]
    return []


def _steps(found: PipelineExplanation) -> Table:
    steps = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("step", "operator in each worker", "memory"):
        steps.add_column(header)
    for header in ("rate", "bound by", "hit rate"):
        steps.add_column(header, justify="right")
    for number, step in enumerate(found.steps):
        worker = found.worker(number)
        if worker is None or step.explanation is None:
            steps.add_row(step.step, f"{step.operator}: {step.note}")
            continue
        steps.add_row(
            step.step,
            f"{described(worker.choice)}: {worker.reason}",
            format_bytes(worker.memory_bytes),
            rate_text(step.explanation.routed_rate if worker is step.explanation.routed else step.explanation.rate),
            worker.choice.bound_by,
            f"{worker.choice.hit_rate:.1%}",
        )
    return steps


def _rate(rate: float | None, unknown: str, behind: str = "") -> str:
    return unknown if rate is None else rate_text(rate) + behind


def _number(rate: float | None) -> float | None:
    return rate if rate is not None and math.isfinite(rate) else None
