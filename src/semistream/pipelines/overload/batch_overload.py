"""BatchOverload: under a latency goal, shed the rows that there is no time to join, and repair them later."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from semistream.budget import MemoryBudget
from semistream.errors import PipelineError
from semistream.pipelines.inputs.shed_archive import ArchiveSplit, archive_layout, leave_archive
from semistream.pipelines.inputs.splits import SourceSplit, Split
from semistream.pipelines.ledger.entries import ArchivedBatch, ArchivedFile, BatchManifest, Plan, ShedPlan
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.overload.controller import OverloadController
from semistream.pipelines.overload.expected_times import expected_times
from semistream.pipelines.overload.loss_report import Latencies, Missing, OverloadReport
from semistream.pipelines.overload.row_values import ValuedRows
from semistream.pipelines.overload.service_times import Observation, ServiceModel
from semistream.pipelines.overload.task_shedding import TaskShedding
from semistream.pipelines.plan.step_plans import StepPlans
from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.tables.table import Table
from semistream.pipelines.tables.writer import TableLayout
from semistream.pipelines.task.batch_task import SHED_AGE_MS
from semistream.relation import Relation
from semistream.shedding import KeepW, MatchCounts, PartSummary, Strategy, batch_seed, choose_strategy, read_decision

_LOG = logging.getLogger(__name__)
_BY_MATCHES = ("top_w", "cluster_sampling")
_REPAIRED_ROWS = 4_000_000  # rows of a batch that only repairs
_SAFE = 1.25  # factor for files with more rows per byte than the last batch


@dataclass(frozen=True)
class _Valuing:
    """Join that values source rows by their number of results."""

    path: str
    on: tuple[str, ...]
    least_results: int
    more_conditions: bool


class SourceRows(Protocol):
    """Rows of a source's batch, before they are joined."""

    @property
    def splits(self) -> Sequence[SourceSplit]:
        """Splits that tasks read themselves."""

    @property
    def through_spark(self) -> bool:
        """True if Spark reads rows of the batch."""

    def count_by_offsets(self) -> int | None:
        """Return the number of rows that Spark reads, by the source's offsets; None if unknown."""

    def summarize(self, shedding: TaskShedding, strategy: str, splits: Sequence[Split]) -> list[PartSummary]:
        """Summarize each part of the batch for a shedding strategy."""


class BatchOverload:
    """Shedding and repair of a pipeline with a latency goal.

    Before work on a source's batch begins, its rows are counted or estimated. If all of them can be joined in time,
    nothing more happens. Otherwise each part of the batch is summarized, a strategy chooses the rows to shed, and the
    ledger records the decision before any work. After the commit, the ledger lists the shed rows until later batches
    have repaired them.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        steps: StepPlans,
        archive: Table,
        ledger: Ledger,
        clock: Callable[[], float],
    ) -> None:
        assert spec.overload is not None
        self._spec, self._setting, self._steps = spec, spec.overload, steps
        self._archive, self._ledger, self._clock = archive, ledger, clock
        learnt = ledger.learnt
        self._guessed: str | None = None
        self._rows_per_byte: float | None = learnt.get("rows_per_byte")
        self._taken_in: float | None = None
        self._valuing = _valuing(spec, steps)
        self._budget = MemoryBudget(max(steps.counts_bytes, 1))
        self._counts: MatchCounts | None = None
        if self._valuing is not None:
            self._match_counts(Relation.open(self._valuing.path).version)  # count now, not while rows wait
        elif self._setting.strategy in _BY_MATCHES:
            raise PipelineError(
                f"overload: {self._setting.strategy} values rows by their matches, but no join equates the whole key "
                "of a relation with columns of the source. Name another `relation`, or leave `strategy` out."
            )
        seen = [Observation(*each) for each in learnt.get("seen", [])]
        expected = expected_times(steps, copies=self._copies_files)
        every_s = parse_duration(spec.every)
        self.controller = OverloadController(self._setting.goal_s, every_s, time.perf_counter, seen, expected)

    def layout(self) -> TableLayout:
        """Return the layout of the files of shed rows."""
        return archive_layout(self._archive, self.controller.batch_rows // 8)

    def before_work(self, plan: Plan, batch: SourceRows, others: Sequence[Split]) -> tuple[list[Split], TaskShedding]:
        """Decide which rows of a planned batch to shed; return the splits that tasks read, and their shedding settings.

        ``others`` are splits of rows that do not come from the source. A decision in the ledger is reused, unless the
        batch is divided differently now.
        """
        own = [_arrived(split, part) for part, split in enumerate(batch.splits)]
        splits: list[Split] = [*own, *others]
        source, weighted = self._steps.source, self._setting.weights
        shedding = TaskShedding(self._spec.name, self._setting.goal_s, plan.at, source, weighted=weighted)
        if plan.source_batch is None:
            return splits, shedding
        decided = self._ledger.shed(plan.batch)
        expected = self._expected(plan, own, batch)
        if decided is None and expected is not None and self._joinable(plan, expected) >= expected:
            return splits, shedding
        valued = self._valued(plan)
        strategy = self._strategy(unique=valued is None or valued.unique, whole_parts=not batch.through_spark)
        by_matches = replace(shedding, valued=valued if strategy.name in _BY_MATCHES else None)
        parts = batch.summarize(by_matches, strategy.name, splits)
        total = sum(part.total for part in parts)
        joined = self._joinable(plan, total) if decided is None else decided.joined
        if decided is None and joined >= total:
            return splits, shedding
        cut = {part.number: part.total for part in parts}
        if decided is None or not _is_of(decided, cut):
            if decided is not None:
                _LOG.warning("batch %d is divided otherwise than before; deciding again which rows to shed", plan.batch)
            decision = strategy.decide(parts, joined, batch_seed(self._spec.name, plan.batch))
            decided = ShedPlan(joined, decision.to_json())
            self._ledger.write_shed(plan.batch, decided)
            self._guessed = None if self.controller.measured else _guess(self.controller.model, total - joined, total)
        shedding = replace(shedding, decision=decided.decision, valued=valued)
        return [*(_weighed(split, shedding) for split in own), *others], shedding

    def repaired_splits(self, plan: Plan) -> list[ArchiveSplit]:
        """Return the splits of shed rows that a batch repairs."""
        return [ArchiveSplit(str(self._archive.path), (file,)) for file in plan.repaired]

    def settle(self, plan: Plan, manifest: BatchManifest) -> None:
        """Record the rows that a batch has shed, and remove those it has repaired from the archive; each once."""
        work = manifest.work
        if shed := work.files.get("shed", []):
            paths = self._archive.shown(plan.batch, shed)
            most = self.layout().file_rows
            files = [
                piece
                for path, file in zip(paths, shed, strict=True)
                for piece in ArchivedFile.of(path, file, plan.batch, most)
            ]
            counts = [work.counts.get(name, 0) for name in ("missing_low", "missing_high", "unvalued")]
            oldest = plan.at - work.peaks.get(SHED_AGE_MS, 0) / 1000
            self._ledger.write_archived(ArchivedBatch(plan.batch, files, work.outcomes["shed"], oldest, *counts))
        if plan.repaired:
            taken = set(plan.repaired)
            known = {each.batch: each for each in self._ledger.archived}
            left = {
                number: [file for file in known[number].files if file not in taken] if number in known else []
                for number in {file.batch for file in plan.repaired}
            }
            leave_archive(self._archive, plan.batch, plan.repaired, [each for each, files in left.items() if not files])
            for number, files in left.items():
                if number in known:
                    self._ledger.write_archived(replace(known[number], files=files))

    def learn(self, plan: Plan, manifest: BatchManifest, *, all_here: bool) -> dict[str, Any]:
        """Learn from a committed batch, its time only if ``all_here``; return the state for the ledger."""
        work, shed = manifest.work, manifest.work.outcomes.get("shed", 0)
        self.controller.end(joined=work.rows_in - shed, shed=shed, learn=all_here and work.rows_in > 0)
        if plan.source_batch is not None:
            self._taken_in = plan.at  # it took all rows available at that time
        owed = _owed(plan)
        if plan.files and (nbytes := _bytes_of(plan.files)):
            self._rows_per_byte = max(work.rows_in - owed, 0) / nbytes
        return {"seen": [list(each) for each in self.controller.seen], "rows_per_byte": self._rows_per_byte}

    def report(self, manifest: BatchManifest) -> OverloadReport:
        """Return latencies, shed rows and missing results after a batch."""
        work, now = manifest.work, self._clock()
        shed = work.outcomes.get("shed", 0)
        tick_ms = TaskShedding("", self._setting.goal_s, 0.0, self._steps.source).tick_ms
        return OverloadReport(
            goal_s=self._setting.goal_s,
            latencies=Latencies.of(work.arrivals, tick_ms, now),
            shed_rows=shed,
            shed_share=shed / work.rows_in if work.rows_in else 0.0,
            missing=Missing.of(self._ledger.archived),
            at=now,
        )

    def remarks(self) -> list[str]:
        """Return remarks for the user about the latency goal."""
        controller, guessed = self.controller, [self._guessed] if self._guessed else []
        self._guessed = None
        if controller.attainable or not controller.seen:
            return guessed
        return [
            *guessed,
            f"the goal of {controller.goal_s:g} s cannot be met: a batch takes {controller.model.fixed_s:.1f} s "
            "besides its rows, and a row also waits for the batch before its own. Raise overload.latency to at least "
            f"{controller.least_goal_s:.0f}s, or give Spark more or faster cores",
        ]

    @property
    def repairs_idle(self) -> bool:
        """True if shed rows are repaired in idle times."""
        return self._setting.repair == "idle"

    def files_to_repair(self, rows: int | None = None) -> list[ArchivedFile]:
        """Return the oldest files of the archive, at most ``rows`` rows together; by default those of a large batch.

        By default there is at least one file, even if it alone has more rows.
        """
        most = _REPAIRED_ROWS if rows is None else rows
        taken: list[ArchivedFile] = []
        held = 0
        for file in (file for each in self._ledger.archived for file in each.files):
            if held + file.rows > most and (taken or rows is not None):
                break
            taken.append(file)
            held += file.rows
        return taken

    def spare_files(self) -> list[ArchivedFile]:
        """Return files that can be repaired now without making new rows late."""
        return self.files_to_repair(self.controller.spare_rows())

    def _joinable(self, plan: Plan, rows: int) -> int:
        owed = _owed(plan)
        oldest_s = self._clock() - self._oldest(plan)
        return self.controller.allow(rows, oldest_s=oldest_s, owed=owed)

    def _oldest(self, plan: Plan) -> float:
        """Return the arrival time of a batch's first row: that of its first file, else after the last batch's plan."""
        times = []
        for file in plan.files:
            with suppress(OSError):
                times.append(Path(file).stat().st_mtime)
        if times:
            return min(times)
        return plan.at if self._taken_in is None else min(self._taken_in, plan.at)

    def _expected(self, plan: Plan, splits: Sequence[SourceSplit], batch: SourceRows) -> int | None:
        """Return the number of rows of a batch, or an estimate, without reading them; None if unknown."""
        told = sum(split.rows for split in splits if split.part is not None)
        if not batch.through_spark:
            return told
        if plan.files:
            by_bytes = None if self._rows_per_byte is None else _bytes_of(plan.files) * self._rows_per_byte * _SAFE
            return None if by_bytes is None else told + int(by_bytes)
        numbered = batch.count_by_offsets()
        return None if numbered is None else told + numbered

    def _match_counts(self, version: int) -> MatchCounts:
        assert self._valuing is not None
        relation = Relation.open(self._valuing.path, version)
        if self._counts is None:
            self._counts = MatchCounts.of(relation, self._budget)
        else:
            self._counts = self._counts.refreshed(relation)
        return self._counts

    def _valued(self, plan: Plan) -> ValuedRows | None:
        valuing = self._valuing
        if valuing is None:
            return None
        counts = self._match_counts(plan.versions[valuing.path])
        return ValuedRows(
            valuing.path,
            counts.version,
            valuing.on,
            self._steps.counts_bytes,
            counts.unique,
            valuing.least_results,
            valuing.more_conditions,
        )

    @property
    def _copies_files(self) -> bool:
        """True if shedding drops whole files that the archive copies unchanged, if their types match."""
        unique = self._counts is None or self._counts.unique
        whole = self._spec.source.format == "parquet" and self._archive.layout.takes_copies
        return whole and isinstance(self._strategy(unique=unique, whole_parts=whole), KeepW)

    def _strategy(self, *, unique: bool, whole_parts: bool) -> Strategy:
        """Return the strategy for the loss; `KeepW` sheds whole parts if the batch allows it."""
        chosen = choose_strategy(self._setting.loss, unique_keys=unique, name=self._setting.strategy)
        return KeepW(whole_parts=True) if whole_parts and isinstance(chosen, KeepW) else chosen


def _guess(model: ServiceModel, shed: int, rows: int) -> str:
    return (
        f"{shed:,} of {rows:,} rows were shed before the cost of a row was measured, by the expected rate of "
        f"{1 / model.joined_s:,.0f} rows/s. `semistream reconcile` joins them; the next batches use the measured "
        "rate"
    )


def _valuing(spec: PipelineSpec, steps: StepPlans) -> _Valuing | None:
    """Return the join that values rows: the one named, or the first; None unless it equates its relation's key."""
    assert spec.overload is not None
    joining = [step for step in spec.steps if step.join is not None or step.keyed is not None]
    for given, planned in zip(joining, steps.steps, strict=True):
        if given.join is None or (spec.overload.relation or given.join.relation.name) != given.join.relation.name:
            continue
        plan = planned.join
        told = set(plan.stream_keys) <= set(steps.source.names)
        if given.join.how != "inner" or plan.access != "equality" or not told:
            return None
        more = given.join.where is not None
        least = 1 if given.join.unmatched == "null" else 0
        return _Valuing(plan.path, plan.stream_keys, least, more or len(plan.stream_keys) < len(_on(given.join.on)))
    return None


def _owed(plan: Plan) -> int:
    """Return the number of rows that a batch joins in any case: waiting and repaired ones."""
    return sum(file.rows for file in plan.taken) + sum(file.rows for file in plan.repaired)


def _on(on: str | Sequence[str] | dict[str, str] | None) -> Sequence[str]:
    return () if on is None else [on] if isinstance(on, str) else list(on)


def _arrived(split: SourceSplit, part: int) -> SourceSplit:
    """Return a split with its number and its file's arrival time; a split of invalid rows unchanged."""
    if split.reason is not None:
        return split
    came_ms = None
    with suppress(OSError):
        came_ms = int(Path(split.path).stat().st_mtime * 1000)
    return replace(split, part=part, came_ms=came_ms)


def _weighed(split: SourceSplit, shedding: TaskShedding) -> SourceSplit:
    """Return a split with its cost for balancing tasks: 0 bytes if all of its rows are shed."""
    return replace(split, nbytes=0) if shedding.sheds_all(split) else split


def _is_of(decided: ShedPlan, cut: dict[int, int]) -> bool:
    """True if a decision is about parts with these numbers of rows."""
    decision = read_decision(decided.decision)
    return dict(zip(decision.parts, decision.rows, strict=True)) == cut


def _bytes_of(files: Sequence[str]) -> int:
    total = 0
    for file in files:
        with suppress(OSError):
            total += Path(file).stat().st_size
    return total
