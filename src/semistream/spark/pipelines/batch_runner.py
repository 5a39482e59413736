"""BatchRunner: take each batch through the ledger, from its plan to the commit of its tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import RLock

from pyspark.sql import DataFrame, SparkSession

from semistream.errors import PipelineError
from semistream.pipelines.batch.batch_report import BatchReport, BatchReporter
from semistream.pipelines.batch.committer import BatchCommitter
from semistream.pipelines.batch.housekeeping import Housekeeping
from semistream.pipelines.batch.planner import BatchPlanner
from semistream.pipelines.ledger.entries import BatchManifest, Plan
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.overload.batch_overload import BatchOverload
from semistream.pipelines.plan.step_plans import StepPlans
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.tables.table import Table
from semistream.spark.pipelines.batch_work import BatchWork
from semistream.spark.pipelines.listener import PipelineListener
from semistream.spark.planning.computed_columns import ComputedColumns
from semistream.spark.sources.base import BatchSource
from semistream.spark.updates.relation_updates import all_updates

ROWS = "rows"
"""Folder of waiting rows in the checkpoint."""


class BatchRunner:
    """Runner of a pipeline's batches: one at a time, each resumed at the stage that the ledger has recorded.

    `BatchPlanner` plans a batch, `BatchWork` runs it on Spark, `BatchCommitter` publishes it, `Housekeeping` cleans
    up and `BatchReporter` reports. Spark triggers the source's batches. Other batches only join waiting or shed rows.
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
        self._spec, self._ledger = spec, ledger
        rows_folder = ledger.folder / ROWS
        rows_folder.mkdir(exist_ok=True)
        writer = f"{spec.name}/{ledger.token}"
        overload = None if spec.overload is None else BatchOverload(spec, steps, tables["shed"], ledger, clock)
        self._updates = all_updates(spec.steps, ledger, writer)
        self._overload = overload
        self._planner = BatchPlanner(spec, steps, ledger, clock)
        self._work = BatchWork(spec, steps, computed, source, tables, ledger, rows_folder, writer, overload)
        self._committer = BatchCommitter(steps, tables, ledger, rows_folder, writer, overload)
        self._housekeeping = Housekeeping(spec, ledger, rows_folder)
        self._reporter = BatchReporter(spec.name, ledger.folder, watch, clock)
        self._on_its_way = RLock()
        self._ended = False
        self.triggers: PipelineListener | None = None
        """Listener with Spark's reports of batches."""

    @property
    def has_run(self) -> bool:
        """True if a batch was planned before."""
        return self._ledger.last_plan is not None

    def run(self, df: DataFrame, source_batch: int) -> None:
        """Run a batch of the source from its last recorded stage to its end."""
        with self._on_its_way:
            if self._ended:  # the error keeps Spark from marking the batch done: it runs at the next start
                raise PipelineError(f"the pipeline {self._spec.name!r} was stopped before this batch began.")
            self._begin()
            plan = self._ledger.plan_of(source_batch)
            if plan is None:
                self._update(df.sparkSession)
                plan = self._planner.plan(source_batch, self.source.files(df))
            if not self._ledger.is_done(plan.batch):
                self._finish(plan, df, df.sparkSession)

    def end(self) -> None:
        """Wait for the current batch to finish, and let no other begin."""
        with self._on_its_way:
            self._ended = True

    def recover(self, spark: SparkSession) -> None:
        """Finish an unfinished batch without source rows; Spark triggers an unfinished batch of the source again.

        Clean up after a finished batch, in case the process died before it did: otherwise rejected update rows would
        go to the quarantine again.
        """
        with self._on_its_way:
            plan = self._ledger.last_plan
            if plan is None:
                return
            manifest = self._ledger.prepared(plan.batch)
            if manifest is not None and self._ledger.is_done(plan.batch):
                self._housekeeping.forget_rows(plan, manifest)
            elif plan.source_batch is None:
                self._finish(plan, None, spark)

    def catch_up(self, spark: SparkSession, *, all_deferred: bool = False) -> None:
        """Run a batch of waiting rows if some can go on, unless another batch is running.

        With ``all_deferred``, all deferred rows go on. With ``repair: idle``, also repair as many shed rows as there is
        spare time for.
        """
        repairs = self._overload if self._overload is not None and self._overload.repairs_idle else None
        if not (self._ledger.waiting or (repairs and self._ledger.archived)):
            return
        if not self._on_its_way.acquire(blocking=False):
            return
        try:
            self._update(spark)
            if self._ledger.open_plan is None:
                taken = self._planner.has_rows_to_take(all_deferred=all_deferred)
                repaired = repairs.spare_files() if repairs else []
                if taken or repaired:
                    self._begin()
                    plan = self._planner.plan(None, [], all_deferred=all_deferred, repaired=repaired)
                    self._finish(plan, None, spark)
        finally:
            self._on_its_way.release()

    @property
    def repairs_idle(self) -> bool:
        """True if shed rows are repaired in idle times."""
        return self._overload is not None and self._overload.repairs_idle

    def reconcile(self, spark: SparkSession, stopping: Callable[[], bool]) -> None:
        """Repair shed rows, in batches of their own, until none is left or ``stopping`` returns True."""
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
                self._finish(self._planner.plan(None, [], repaired=files), None, spark)

    def _begin(self) -> None:
        """Start the clock of a batch."""
        if self._overload is not None:
            self._overload.controller.begin()

    def _update(self, spark: SparkSession) -> None:
        """Apply new updates of relations, unless a batch is unfinished."""
        if self._ledger.open_plan is None:
            for updates in self._updates:
                updates.apply(spark)

    def _finish(self, plan: Plan, df: DataFrame | None, spark: SparkSession) -> None:
        """Run a batch from the stage recorded in the ledger to its end."""
        ledger, start = self._ledger, time.perf_counter()
        manifest = ledger.prepared(plan.batch)
        remarks: list[str] = []
        replayed = manifest is not None
        resumed = replayed or bool(ledger.staged(plan.batch))
        if manifest is None:
            before = ledger.waiting
            work, remarks = self._work.run(plan, df, spark)
            left = [file for file in before if file not in plan.taken]
            manifest = BatchManifest(plan.batch, work, left + work.waiting)
            ledger.write_prepared(manifest)
        self._committer.commit(plan, manifest, resumed=resumed)
        self._housekeeping.after(plan, manifest)
        seconds = time.perf_counter() - start
        if plan.drains:
            self._planner.drained(seconds)
        overload = self._overload
        self._reporter.report(
            plan,
            manifest,
            seconds=seconds,
            replayed=replayed,
            remarks=[*remarks, *(overload.remarks() if overload else [])],
            trigger=None if self.triggers is None else self.triggers.last,
            overload=None if overload is None else overload.report(manifest),
        )
