"""Batches: each goes through the ledger, from the plan over its phases to the tables, and is picked up where it was."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock

from pyspark.sql import DataFrame, SparkSession

from semistream.costs.profiles import machine_for
from semistream.errors import PipelineError
from semistream.pipelines.inputs.splits import RowsSplit, Split
from semistream.pipelines.ledger.entries import ArchivedFile, BatchManifest, Plan, TaskResult, WaitingFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.open_tables import entry_rules
from semistream.pipelines.overload.task_shedding import TaskShedding
from semistream.pipelines.spec.durations import parse_duration
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.status import METRICS
from semistream.pipelines.steps.snapshot_changes import WITHHELD, end_snapshot, publish_snapshot
from semistream.pipelines.tables.quarantine import with_rejected
from semistream.pipelines.tables.table import Table
from semistream.pipelines.task.batch_task import TaskPlan
from semistream.pipelines.task.waiting_rows import Deferral, WaitingPolicy
from semistream.relation import Relation, Transaction
from semistream.relation.format.manifest import get_current
from semistream.spark.pipelines.batch_overload import Overload
from semistream.spark.pipelines.batch_report import BatchReport
from semistream.spark.pipelines.listener import PipelineListener
from semistream.spark.pipelines.phase import Computed, run_phase
from semistream.spark.pipelines.stalled_rows import decide
from semistream.spark.pipelines.vacuum_relations import vacuum_relations
from semistream.spark.pipelines.worker_task import PipelineTask
from semistream.spark.planning.computed_columns import ComputedColumns
from semistream.spark.planning.step_plans import StepPlans
from semistream.spark.sources.base import BatchInput, BatchSource
from semistream.spark.updates.relation_updates import all_updates

_LOG = logging.getLogger(__name__)
_ROWS_IN_MEMORY = 64  # of the widest that a join of a pipeline takes
ROWS = "rows"
"""The folder in the checkpoint that has rows which wait."""
_VACUUM_EVERY, _KEPT_VERSIONS = 16, 8  # batches; others that share a relation may still be at an older version


class BatchRunner:
    """Takes batches through the ledger, one at a time.

    Those of the source come from Spark; others only take up rows that wait, when no rows come for them to go with.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        steps: StepPlans,
        computed: ComputedColumns,
        source: BatchSource,
        tables: dict[str, Table],
        ledger: Ledger,
        watch: Callable[[BatchReport], None],
        clock: Callable[[], float],
    ) -> None:
        self.source = source
        self._spec, self._steps, self._computed, self._tables = spec, steps, computed, tables
        self._ledger, self._watch, self._clock = ledger, watch, clock
        self._rows = ledger.folder / ROWS
        self._rows.mkdir(exist_ok=True)
        self._writer = f"{spec.name}/{ledger.token}"
        self._updates = all_updates(spec.steps, ledger, self._writer)
        self._deferral = None if spec.latency is None else _deferral(spec, self._paths)
        self._overload = None if spec.overload is None else Overload(spec, steps, tables["shed"], ledger, clock)
        self._last_drain_s = 0.0
        self._on_its_way = RLock()
        self._ended = False
        self.triggers: PipelineListener | None = None
        """Who knows what Spark says of batches."""

    @property
    def has_run(self) -> bool:
        """Whether some batch was planned."""
        return self._ledger.last_plan is not None

    def run(self, df: DataFrame, source_batch: int) -> None:
        """Take a batch of the source from where it is to its end."""
        with self._on_its_way:
            if self._ended:  # not done: Spark must not take it for that, and gives it again the next time
                raise PipelineError(f"the pipeline {self._spec.name!r} was stopped before this batch began.")
            self._begin()
            plan = self._ledger.plan_of(source_batch)
            if plan is None:
                self._update(df.sparkSession)
                plan = self._plan(source_batch, self.source.files(df))
            if not self._ledger.is_done(plan.batch):
                self._finish(plan, df, df.sparkSession)

    def end(self) -> None:
        """Wait for the batch at hand, and let no other begin."""
        with self._on_its_way:
            self._ended = True

    def recover(self, spark: SparkSession) -> None:
        """Finish a batch that only takes up rows that wait; one of the source is given again by Spark.

        Of a batch that is done, what is needed no longer is removed, as that may not have been: rows of updates that
        were no use would go to the quarantine again.
        """
        with self._on_its_way:
            plan = self._ledger.last_plan
            if plan is None:
                return
            manifest = self._ledger.prepared(plan.batch)
            if manifest is not None and self._ledger.is_done(plan.batch):
                self._forget_rows(plan, manifest)
            elif plan.source_batch is None:
                self._finish(plan, None, spark)

    def catch_up(self, spark: SparkSession, *, all_deferred: bool = False) -> None:
        """Take up rows that wait if some can go on, in a batch of their own, unless one is on its way.

        Rows that were shed are repaired if the pipeline is idle, and is to use such times.
        """
        repairs = self._overload if self._overload is not None and self._overload.repairs_idle else None
        if not (self._ledger.waiting or (repairs and self._ledger.archived)):
            return
        if not self._on_its_way.acquire(blocking=False):
            return
        try:
            self._update(spark)
            if self._ledger.open_plan is None:
                taken = self._taken(self._clock(), drains=all_deferred or self._due())
                repaired = repairs.spare_files() if repairs else []
                if taken or repaired:
                    self._begin()
                    self._finish(self._plan(None, [], all_deferred=all_deferred, repaired=repaired), None, spark)
        finally:
            self._on_its_way.release()

    @property
    def repairs_idle(self) -> bool:
        """Whether rows that were shed are repaired when there is time."""
        return self._overload is not None and self._overload.repairs_idle

    def reconcile(self, spark: SparkSession, stopping: Callable[[], bool]) -> None:
        """Repair all rows that were shed, in batches of their own, until none is left or somebody says so."""
        assert self._overload is not None
        with self._on_its_way:
            plan = self._ledger.open_plan
            if plan is not None and self._ledger.prepared(plan.batch) is None:
                raise PipelineError(
                    f"batch {plan.batch} of the pipeline {self._spec.name!r} is not finished. Run the pipeline first, "
                    "then reconcile."
                )
            if plan is not None:
                self._finish(plan, None, spark)
            self._update(spark)
            while (files := self._overload.files_to_repair()) and not stopping():
                self._begin()
                self._finish(self._plan(None, [], repaired=files), None, spark)

    def _begin(self) -> None:
        """A batch begins: what follows is counted as its time."""
        if self._overload is not None:
            self._overload.controller.begin()

    def _update(self, spark: SparkSession) -> None:
        """Apply what has come to change relations, unless a batch is half done."""
        if self._ledger.open_plan is None:
            for updates in self._updates:
                updates.apply(spark)

    def _plan(
        self,
        source_batch: int | None,
        files: list[str],
        *,
        all_deferred: bool = False,
        repaired: Sequence[ArchivedFile] = (),
    ) -> Plan:
        """Decide all that there is to decide for the next batch, and remember it."""
        last, now = self._ledger.last_plan, self._clock()
        drains = all_deferred or self._due()
        plan = Plan(
            batch=0 if last is None else last.batch + 1,
            source_batch=source_batch,
            versions={path: get_current(Path(path)) for path in self._paths},
            at=now,
            drains=drains,
            taken=self._taken(now, drains=drains),
            files=files,
            rejected=sorted(path.name for path in self._ledger.updates_folder.glob("*.rejected.parquet")),
            repaired=list(repaired),
        )
        self._ledger.write_plan(plan)
        return plan

    @property
    def _paths(self) -> list[str]:
        return [step.join.path for step in self._steps.steps]

    def _due(self) -> bool:
        """Whether rows that were deferred have to go on now."""
        if self._deferral is None:
            return True
        return self._deferral.is_due(self._ledger.waiting, self._clock(), self._last_drain_s)

    def _taken(self, now: float, *, drains: bool) -> list[WaitingFile]:
        versions = [get_current(Path(path)) for path in self._paths]
        policy = WaitingPolicy(versions, [step.retry_s for step in self._steps.steps])
        return policy.taken(self._ledger.waiting, now, drains=drains)

    def _finish(self, plan: Plan, df: DataFrame | None, spark: SparkSession) -> None:
        """Take a batch from where the ledger says it is to its end."""
        ledger, start = self._ledger, time.perf_counter()
        manifest = ledger.prepared(plan.batch)
        remarks: list[str] = []
        replayed = manifest is not None
        resumed = replayed or bool(ledger.staged(plan.batch))
        if manifest is None:
            before = ledger.waiting
            work, remarks = self._work(plan, df, spark)
            left = [file for file in before if file not in plan.taken]
            manifest = BatchManifest(plan.batch, work, left + work.waiting)
            ledger.write_prepared(manifest)
        for outcome, table in self._tables.items():
            reached(f"before commit of {outcome}")
            table.commit(plan.batch, manifest.work.files.get(outcome, []))
        if self._steps.changes is not None:
            relation = Relation.open(self._paths[0])
            publish_snapshot(relation, manifest.work, self._rows, Transaction(self._writer, plan.batch))
        learnt = None
        if self._overload is not None:
            self._overload.settle(plan, manifest)
            learnt = self._overload.learn(plan, manifest, all_here=not resumed)
            remarks += self._overload.remarks()
        ledger.write_done(plan.batch, learnt)
        self._forget_rows(plan, manifest)
        if plan.batch % _VACUUM_EVERY == _VACUUM_EVERY - 1:
            vacuum_relations(self._spec, _KEPT_VERSIONS)
        seconds = time.perf_counter() - start
        if plan.drains:
            self._last_drain_s = seconds
        self._tell(plan, manifest, seconds, replayed, tuple(remarks))

    def _work(self, plan: Plan, df: DataFrame | None, spark: SparkSession) -> tuple[TaskResult, list[str]]:
        """All phases of a batch that were not worked through yet."""
        staged = self._ledger.staged(plan.batch)
        remarks: list[str] = []
        versions = [plan.versions[path] for path in self._paths]
        if staged:
            total = staged[-1]
        else:
            given = BatchInput()
            if plan.source_batch is not None:
                given = self.source.read(df, plan.files, spark)
                remarks = given.remarks
            rows = None if given.rows is None else self._computed.applied(given.rows)
            splits: list[Split] = [*given.splits, *self._splits(plan.taken)]
            shedding = None
            if self._overload is not None:
                others: list[Split] = [*self._splits(plan.taken), *self._overload.repaired_splits(plan)]
                splits, shedding = self._overload.before_work(plan, given, rows, others, spark)
            total = self._phase(plan, 0, versions, rows, splits, spark, shedding)
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
            transaction = Transaction(self._writer, plan.batch << 10 | phase)
            decision = decide(self._steps.steps, self._rows, total.stalled, transaction, plan.batch)
            versions = [decision.versions.get(link, version) for link, version in enumerate(versions)]
            again = self._splits(total.stalled, decision.first)
            total = total.followed_by(self._phase(plan, phase, versions, None, again, spark))
            phase += 1
        return total, remarks

    def _phase(
        self,
        plan: Plan,
        phase: int,
        versions: Sequence[int],
        rows: DataFrame | None,
        splits: Sequence[Split],
        spark: SparkSession,
        shedding: TaskShedding | None = None,
    ) -> TaskResult:
        steps, after = self._steps, self._computed.after
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
            rows_folder=str(self._rows),
            constants=steps.constants,
            written=not after,
            most_row_bytes=min(step.join.memory_bytes for step in steps.steps) // _ROWS_IN_MEMORY,
            routed=steps.read_by_owners,
            shedding=shedding,
        )
        joins = tuple((step.join, step.link) for step in steps.steps)
        task = PipelineTask(task_plan, joins, (), not plan.drains, steps.changes, steps.joined if after else None)
        computed = Computed(after, self._tables["joined"].layout) if after else None
        return run_phase(spark, task, rows, splits, computed)

    def _with_deleted(self, plan: Plan, work: TaskResult) -> TaskResult:
        """The work for a snapshot with the rows that are no longer there; other work as it is."""
        changes = self._steps.changes
        if changes is None or plan.source_batch is None:
            return work
        before = Relation.open(self._paths[0], plan.versions[self._paths[0]])
        prefix = f"{plan.batch:012d}-0"
        return end_snapshot(before, changes, work, self._rows, self._tables["joined"].layout, prefix)

    def _splits(self, files: Sequence[WaitingFile], first: dict[str, str] | None = None) -> list[RowsSplit]:
        """Files of rows by their origin, with those that tell which are the first of their key."""
        origins: dict[str, list[WaitingFile]] = {}
        for file in files:
            origins.setdefault(file.origin, []).append(file)
        flags = first or {}
        return [
            RowsSplit(str(self._rows), tuple(own), tuple(flags.get(file.path) for file in own))
            for own in origins.values()
        ]

    def _forget_rows(self, plan: Plan, manifest: BatchManifest) -> None:
        """Remove files of rows that wait no longer, and what dead tasks have left of others."""
        for name in plan.rejected:
            (self._ledger.updates_folder / name).unlink(missing_ok=True)
        kept = {file.path for file in manifest.waiting}
        for path in self._rows.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)  # a task of a dead driver may clean up as well

    def _tell(
        self, plan: Plan, manifest: BatchManifest, seconds: float, replayed: bool, remarks: tuple[str, ...]
    ) -> None:
        report = BatchReport.of(
            self._spec.name,
            plan.source_batch,
            manifest,
            at=self._clock(),
            seconds=seconds,
            replayed=replayed,
            versions=plan.versions,
            remarks=remarks,
            lag_s=_lag(plan.files, self._clock()),
            trigger=None if self.triggers is None else self.triggers.last,
            overload=None if self._overload is None else self._overload.report(manifest),
        )
        for remark in remarks:
            _LOG.warning("batch %d: %s", plan.batch, remark)
        with (self._ledger.folder / METRICS).open("a") as file:
            file.write(json.dumps(report.as_dict()) + "\n")
        self._watch(report)


def _withheld(work: TaskResult) -> str:
    return (
        f"{work.outcomes['invalid']} rows of the snapshot are invalid, so {work.counts[WITHHELD]} rows that it does "
        "not have are not taken for deleted: they may be these. The next snapshot without invalid rows tells."
    )


def _deferral(spec: PipelineSpec, paths: Sequence[str]) -> Deferral:
    """When rows go on that wait for others to share a pass over the relations of a pipeline."""
    assert spec.latency is not None
    pass_s = 0.0
    for path in paths:
        relation = Relation.open(path)
        pass_s += machine_for(relation.path).disk.request_s(relation.nbytes, relation.num_pages)
    return Deferral(parse_duration(spec.latency), pass_s, parse_duration(spec.every))


def _lag(files: Sequence[str], now: float) -> float | None:
    """How long ago the first of some files came; None if there are none, or they are gone."""
    times = []
    for file in files:
        with suppress(OSError):
            times.append(Path(file).stat().st_mtime)
    return max(now - min(times), 0.0) if times else None
