"""BatchWork: run the phases of a batch on workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semistream.pipelines.batch.stalled_rows import decide
from semistream.pipelines.batch.workers import BatchInput, Workers
from semistream.pipelines.inputs.splits import RowsSplit, Split
from semistream.pipelines.ledger.entries import Plan, TaskResult, WaitingFile
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.open_tables import entry_rules
from semistream.pipelines.overload.batch_overload import BatchOverload
from semistream.pipelines.overload.task_shedding import TaskShedding
from semistream.pipelines.plan.step_plans import StepPlans
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.steps.snapshot_changes import WITHHELD, end_snapshot
from semistream.pipelines.tables.quarantine import with_rejected
from semistream.pipelines.tables.table import Table
from semistream.pipelines.task.batch_task import TaskPlan
from semistream.pipelines.task.worker_task import PipelineTask
from semistream.relation import Relation, Transaction


class BatchWork:
    """Runner of a planned batch's phases; phases recorded in the ledger are not repeated.

    A phase sends rows through the joins of the workers. Rows with a key that a key relation does not have yet stall.
    When the whole batch has been read, their keys are added to the relation, and the rows go on in another phase.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        steps: StepPlans,
        tables: Mapping[str, Table],
        ledger: Ledger,
        rows_folder: Path,
        overload: BatchOverload | None,
    ) -> None:
        self._spec, self._steps, self._tables = spec, steps, tables
        self._ledger, self._overload, self._rows_folder = ledger, overload, rows_folder

    def run(self, plan: Plan, workers: Workers) -> tuple[TaskResult, list[str]]:
        """Run the phases of a batch that the ledger does not have; return the total result and remarks for the user."""
        staged = self._ledger.staged(plan.batch)
        remarks: list[str] = []
        versions = [plan.versions[path] for path in self._steps.paths]
        if staged:
            total = staged[-1]
        else:
            given = BatchInput()
            if plan.source_batch is not None:
                given = workers.read(plan)
                remarks = given.remarks
            splits: list[Split] = [*given.splits, *self._splits(plan.taken)]
            shedding = None
            if self._overload is not None:
                others: list[Split] = [*self._splits(plan.taken), *self._overload.repaired_splits(plan)]
                splits, shedding = self._overload.before_work(plan, workers.source_rows(given, plan), others)
            total = self._phase(workers, plan, 0, versions, given.rows, splits, shedding)
            total = self._with_deleted(plan, total)
            if total.counts.get(WITHHELD):
                remarks = [*remarks, _withheld(total)]
            if plan.rejected:
                folder = self._ledger.updates_folder
                total = with_rejected(total, plan, folder, self._tables["invalid"].layout)
        phase = max(len(staged), 1)
        while total.stalled:
            if len(staged) < phase:
                self._ledger.write_staged(plan.batch, phase - 1, total)
            transaction = Transaction(self._ledger.writer, plan.batch << 10 | phase)
            decision = decide(self._steps.steps, self._rows_folder, total.stalled, transaction, plan.batch)
            versions = [decision.versions.get(link, version) for link, version in enumerate(versions)]
            again = self._splits(total.stalled, decision.first)
            total = total.followed_by(self._phase(workers, plan, phase, versions, None, again))
            phase += 1
        return total, remarks

    def _phase(
        self,
        workers: Workers,
        plan: Plan,
        phase: int,
        versions: Sequence[int],
        rows: Any,
        splits: Sequence[Split],
        shedding: TaskShedding | None = None,
    ) -> TaskResult:
        steps = self._steps
        layouts = {outcome: table.layout for outcome, table in self._tables.items()}
        if self._overload is not None:
            layouts["shed"] = self._overload.layout()
        task_plan = TaskPlan(
            batch=plan.batch,
            at=plan.at,
            phase=phase,
            source=steps.source,
            rules=entry_rules(self._spec, steps.source, self._tables.values()),
            tables=layouts,
            entering=steps.entering,
            labels=tuple(step.link.label for step in steps.steps),
            versions=tuple(versions),
            retry_s=tuple(step.retry_s for step in steps.steps),
            rows_folder=str(self._rows_folder),
            constants=steps.constants,
            written=not workers.computes,
            most_row_bytes=steps.most_row_bytes,
            routed=steps.read_by_owners,
            shedding=shedding,
        )
        joins = tuple((step.join, step.link) for step in steps.steps)
        given_out = steps.joined if workers.computes else None
        task = PipelineTask(task_plan, joins, (), not plan.drains, steps.changes, given_out)
        return workers.run_phase(task, rows, splits)

    def _with_deleted(self, plan: Plan, work: TaskResult) -> TaskResult:
        """Add the deleted rows to the result of a snapshot; return other results unchanged."""
        changes = self._steps.changes
        if changes is None or plan.source_batch is None:
            return work
        before = Relation.open(self._steps.paths[0], plan.versions[self._steps.paths[0]])
        prefix = f"{plan.batch:012d}-0"
        return end_snapshot(before, changes, work, self._rows_folder, self._tables["joined"].layout, prefix)

    def _splits(self, files: Sequence[WaitingFile], first: dict[str, str] | None = None) -> list[RowsSplit]:
        """Group files of rows by origin into splits, with the files that flag the ``first`` rows of a key."""
        origins: dict[str, list[WaitingFile]] = {}
        for file in files:
            origins.setdefault(file.origin, []).append(file)
        flags = first or {}
        return [
            RowsSplit(str(self._rows_folder), tuple(own), tuple(flags.get(file.path) for file in own))
            for own in origins.values()
        ]


def _withheld(work: TaskResult) -> str:
    return (
        f"{work.outcomes['invalid']} rows of the snapshot are invalid. The {work.counts[WITHHELD]} rows missing from "
        "it may be among these, so they are not reported as deleted. The next snapshot without invalid rows decides."
    )
