"""Reports of the pipeline commands, as data and as text."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table

from semistream.budget import format_bytes
from semistream.cli.output import Report, facts

if TYPE_CHECKING:
    from semistream.pipelines.batch.batch_report import BatchReport
    from semistream.pipelines.status import PipelineState
    from semistream.spark.planning.validate import PipelineFacts


@dataclass(frozen=True)
class Validated(Report):
    """The facts of a valid pipeline, and its file."""

    file: Path
    found: PipelineFacts

    def plain(self) -> dict[str, Any]:
        plain = asdict(self.found)
        return {"pipeline": plain.pop("name"), "file": str(self.file), **plain}

    def text(self) -> RenderableType:
        found = self.found
        relations = Table(box=None, pad_edge=False, header_style="bold")
        for header in ("step", "relation", "rows", "version", "operator", "memory"):
            relations.add_column(header)
        for each in found.relations:
            relations.add_row(
                each["step"],
                each["relation"],
                "created by run" if each["rows"] is None else f"{each['rows']:,}",
                "" if each["version"] is None else str(each["version"]),
                each["operator"],
                format_bytes(each["memory_bytes"]),
            )
        columns = ", ".join(f"{name} {type_}" for name, type_ in found.columns.items())
        head = facts(
            ("pipeline", found.name),
            ("source", found.source),
            ("memory", f"{format_bytes(found.memory_bytes)} in each worker"),
            *found.tables.items(),
            ("columns out", columns),
            title=f"{self.file} is valid",
        )
        return Group(head, "", relations)


@dataclass
class PipelineRun(Report):
    """Totals of a pipeline run."""

    pipeline: str
    file: str
    batches: int = 0
    rows_in: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    waiting_rows: int = 0
    seconds: float = 0.0
    log: str = ""

    def add(self, report: BatchReport) -> None:
        """Add a batch to the totals."""
        self.batches += 1
        self.rows_in += report.rows_in
        self.seconds = round(self.seconds + report.seconds, 3)
        self.waiting_rows = report.waiting_rows
        for outcome, rows in report.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + rows

    def text(self) -> RenderableType:
        rate = self.rows_in / self.seconds if self.seconds else 0.0
        return facts(
            ("pipeline", self.pipeline),
            ("batches", self.batches),
            ("rows", f"{self.rows_in:,} in {self.seconds:,.1f} s of processing, {rate:,.0f} rows/s"),
            *((outcome, count) for outcome, count in self.outcomes.items() if count),
            ("waiting rows", self.waiting_rows),
            ("Spark's log", self.log),
        )


@dataclass(frozen=True)
class PipelineStatus(Report):
    """Progress of a pipeline."""

    pipeline: str
    checkpoint: str
    state: PipelineState

    @classmethod
    def of(cls, file: Path) -> PipelineStatus:
        """Read the progress from the pipeline's checkpoint."""
        from semistream.pipelines.spec.yaml_file import read_spec
        from semistream.pipelines.status import pipeline_state

        spec = read_spec(file)
        return cls(spec.name, str(spec.checkpoint), pipeline_state(spec.checkpoint, spec.name))

    def plain(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline, "checkpoint": self.checkpoint, **asdict(self.state)}

    def text(self) -> RenderableType:
        state = self.state
        unfinished = "none" if state.unfinished is None else f"batch {state.unfinished}, {state.stage}"
        head = facts(
            ("pipeline", self.pipeline),
            ("checkpoint", self.checkpoint),
            ("last finished batch", "none" if state.last_batch is None else state.last_batch),
            ("unfinished", unfinished),
            ("waiting rows", state.waiting_rows),
            *_missing(state),
        )
        recent = Table(box=None, pad_edge=False, header_style="bold")
        names = ["batch", "rows_in", "joined", "unmatched", "pending", "duplicate", "invalid", "seconds", "rows_per_s"]
        if any("overload" in line for line in state.recent):
            names.insert(-2, "shed")
        for name in names:
            recent.add_column(name, justify="right")
        for line in state.recent:
            recent.add_row(*(f"{line.get(name, 0):,}" for name in names))
        return Group(head, recent) if state.recent else head


@dataclass(frozen=True)
class PipelineVacuumed(Report):
    """Files removed by a vacuum, none of them used by a table."""

    pipeline: str
    removed: list[str]

    @classmethod
    def of(cls, file: Path, removed: list[Path]) -> PipelineVacuumed:
        """Report the removed files."""
        return cls(file.stem, [str(path) for path in removed])

    def text(self) -> RenderableType:
        return facts(("pipeline", self.pipeline), ("files removed", len(self.removed)))


def _missing(state: PipelineState) -> list[tuple[str, object]]:
    """Describe shed rows not repaired yet, and the latency of the last batch against its goal."""
    rows: list[tuple[str, object]] = []
    missing = state.missing
    if missing.rows and missing.since is not None:
        rows.append(("shed rows to repair", f"{missing.rows:,}"))
        rows.append(("oldest of them arrived", _ago(missing.since)))
        rows.append(("missing results", between(missing.results_low, missing.results_high)))
    last = next((line["overload"] for line in reversed(state.recent) if "overload" in line), None)
    if last is not None and last["p95_s"] is not None:
        taken = f"{last['p50_s']:.1f} / {last['p95_s']:.1f} / {last['p99_s']:.1f} s"
        rows.append(("latency p50 / p95 / p99", f"{taken}, goal {last['goal_s']:g} s"))
    return rows


def between(low: int, high: int | None) -> str:
    """Format a number known to lie in an interval.

    >>> between(5, 5), between(0, 1200), between(3, None)
    ('5', '0 to 1,200', '3 or more')
    """
    if high is None:
        return f"{low:,} or more"
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _ago(since: float) -> str:
    return f"{max(time.time() - since, 0):,.0f} s ago"
