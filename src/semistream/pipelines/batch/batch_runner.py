"""BatchRunner: take each batch through the ledger, from its plan to the commit of its tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import RLock

from semistream.errors import PipelineError, SemistreamError
from semistream.pipelines.batch.batch_report import BatchReport, BatchReporter, Trigger
from semistream.pipelines.batch.batch_work import BatchWork
from semistream.pipelines.batch.committer import BatchCommitter
from semistream.pipelines.batch.housekeeping import Housekeeping
from semistream.pipelines.batch.part_times import PartTimes
from semistream.pipelines.batch.planner import BatchPlanner
from semistream.pipelines.batch.workers import Workers
from semistream.pipelines.ledger.entries import BatchManifest, Plan
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.overload.batch_overload import BatchOverload
from semistream.pipelines.plan.step_plans import StepPlans
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.tables.table import Table
from semistream.storage.local_files import make_folder, sync_folder

ROWS = "rows"
"""Folder of waiting rows in the checkpoint."""


class BatchRunner:
    """Runner of a pipeline's batches: one at a time, each resumed at the stage that the ledger has recorded.

    `BatchPlanner` plans a batch, `BatchWork` runs it on `Workers`, `BatchCommitter` publishes it, `Housekeeping` cleans
    up and `BatchReporter` reports. The workers trigger the source's batches. Other batches only join waiting or shed
    rows. With `publishes_later`, the ``publisher`` publishes batches, by default a thread.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        steps: StepPlans,
        workers: Workers,
        tables: dict[str, Table],
        ledger: Ledger,
        watch: Callable[[BatchReport], None],
        clock: Callable[[], float],
        publisher: Executor | None = None,
    ) -> None:
        self.steps = steps
        self._spec, self._workers, self._ledger = spec, workers, ledger
        rows_folder = ledger.folder / ROWS
        make_folder(rows_folder)
        overload = None if spec.overload is None else BatchOverload(spec, steps, tables["shed"], ledger, clock)
        self._overload = overload
        self._planner = BatchPlanner(spec, steps, ledger, clock)
        self._work = BatchWork(spec, steps, tables, ledger, rows_folder, overload)
        self._committer = BatchCommitter(steps, tables, ledger, rows_folder, overload)
        self._housekeeping = Housekeeping(spec, ledger, rows_folder)
        self._reporter = BatchReporter(spec.name, ledger.folder, watch, clock)
        self._times = PartTimes()
        self._on_its_way = RLock()
        self._publisher = publisher or ThreadPoolExecutor(1, "publisher")
        self._publishing: Future[None] | None = None
        self._ended = False
        self.last_trigger: Callable[[], Trigger | None] = lambda: None
        """Returns the latest trigger that the workers have reported."""
        self.publishes_later = False
        """True if a batch is published while the workers record its offsets and look for the next one."""

    @property
    def has_run(self) -> bool:
        """True if a batch was planned before."""
        return self._ledger.last_plan is not None

    @property
    def last_source_batch(self) -> int | None:
        """Last batch of the source that was planned before."""
        return self._ledger.last_source_batch

    def run(self, source_batch: int, workers: Workers) -> None:
        """Run a batch of the source, which ``workers`` have, from its last recorded stage to its end."""
        with self._on_its_way:
            self._wait_for_publication()
            if self._ended:  # the error keeps the batch from being marked done: it runs at the next start
                raise PipelineError(f"the pipeline {self._spec.name!r} was stopped before this batch began.")
            self._begin()
            plan = self._ledger.plan_of(source_batch)
            if plan is None:
                self._update(workers)
                with self._times.part("list files"):
                    files = workers.files(source_batch)
                with self._times.part("plan"):
                    plan = self._planner.plan(source_batch, files)
            if not self._ledger.is_done(plan.batch):
                self._finish(plan, workers, later=self.publishes_later)

    def end(self) -> None:
        """Wait for the current batch to finish, and let no other begin."""
        with self._on_its_way:
            self._ended = True
            try:
                self._wait_for_publication()
                self._planner.release()
            finally:
                self._publisher.shutdown()

    def recover(self) -> None:
        """Finish a batch that is prepared or has no source rows; the source has any other one again.

        Clean up after a finished batch, in case the process died before it did: otherwise rejected update rows would
        go to the quarantine again. Versions of relations are made durable before anything follows from them: their
        writer may have died before it did so.
        """
        with self._on_its_way:
            for path in self.steps.paths:
                sync_folder(Path(path))
            plan = self._ledger.last_plan
            if plan is None:
                return
            self._committer.restore()
            manifest = self._ledger.prepared(plan.batch)
            if manifest is not None and self._ledger.is_done(plan.batch):
                self._housekeeping.forget_rows(plan, manifest)
            elif manifest is not None or plan.source_batch is None:
                self._finish(plan, self._workers)

    def catch_up(self, *, all_deferred: bool = False) -> None:
        """Run a batch of waiting rows if some can go on, unless another batch is running.

        With ``all_deferred``, all deferred rows go on. With ``repair: idle``, also repair as many shed rows as there is
        spare time for.
        """
        if self._publishing is not None and self._publishing.done():
            self._wait_for_publication()
        repairs = self._overload if self._overload is not None and self._overload.repairs_idle else None
        if not (self._ledger.waiting or (repairs and self._ledger.archived)):
            return
        if not self._on_its_way.acquire(blocking=False):
            return
        try:
            self._wait_for_publication()
            self._update(self._workers)
            if self._ledger.open_plan is None:
                taken = self._planner.has_rows_to_take(all_deferred=all_deferred)
                repaired = repairs.spare_files() if repairs else []
                if taken or repaired:
                    self._begin()
                    plan = self._planner.plan(None, [], all_deferred=all_deferred, repaired=repaired)
                    self._finish(plan, self._workers)
        finally:
            self._on_its_way.release()

    @property
    def repairs_idle(self) -> bool:
        """True if shed rows are repaired in idle times."""
        return self._overload is not None and self._overload.repairs_idle

    def reconcile(self, stopping: Callable[[], bool]) -> None:
        """Repair shed rows, in batches of their own, until none is left or ``stopping`` returns True."""
        assert self._overload is not None
        with self._on_its_way:
            self._wait_for_publication()
            plan = self._ledger.open_plan
            if plan is not None and self._ledger.prepared(plan.batch) is None:
                raise PipelineError(
                    f"batch {plan.batch} of the pipeline {self._spec.name!r} is not finished. Run the pipeline first, "
                    "then reconcile."
                )
            if plan is not None:
                self._finish(plan, self._workers)
            self._update(self._workers)
            while (files := self._overload.files_to_repair()) and not stopping():
                self._begin()
                self._finish(self._planner.plan(None, [], repaired=files), self._workers)

    def _begin(self) -> None:
        """Start the clock of a batch."""
        self._times.take()
        if self._overload is not None:
            self._overload.controller.begin()

    def _update(self, workers: Workers) -> None:
        """Apply new updates of relations, unless a batch is unfinished."""
        if self._ledger.open_plan is None:
            with self._times.part("update relations"):
                workers.update_relations()

    def _finish(self, plan: Plan, workers: Workers, *, later: bool = False) -> None:
        """Run a batch from the stage recorded in the ledger to its end; with ``later``, publish it in a thread.

        Once a batch is prepared, nothing but its publication is left, whatever happens to the workers or this process.
        """
        ledger, start = self._ledger, time.perf_counter()
        manifest = ledger.prepared(plan.batch)
        remarks: list[str] = []
        replayed = manifest is not None
        resumed = replayed or bool(ledger.staged(plan.batch))
        if manifest is None:
            plan = self._planner.renewed(plan, begun=resumed)
            before = ledger.waiting
            with self._times.part("join and write"):
                work, remarks = self._work.run(plan, workers)
            left = [file for file in before if file not in plan.taken]
            manifest = BatchManifest(plan.batch, work, left + work.waiting)
            with self._times.part("prepare"):
                ledger.write_prepared(manifest)
        publish = partial(self._publish, plan, manifest, start, replayed=replayed, resumed=resumed, remarks=remarks)
        if later:
            self._publishing = self._publisher.submit(publish)
        else:
            publish()

    def _publish(
        self, plan: Plan, manifest: BatchManifest, start: float, *, replayed: bool, resumed: bool, remarks: list[str]
    ) -> None:
        """Commit a prepared batch, clean up after it, and report it."""
        with self._times.part("commit"):
            self._committer.commit(plan, manifest, resumed=resumed)
        with self._times.part("clean up"):
            self._housekeeping.after(plan, manifest)
        seconds = time.perf_counter() - start
        if plan.drains:
            self._planner.drained(seconds)
        overload = self._overload
        self._reporter.report(
            plan,
            manifest,
            seconds=seconds,
            parts_s=self._times.take(),
            replayed=replayed,
            remarks=[*remarks, *(overload.remarks() if overload else [])],
            trigger=self.last_trigger(),
            overload=None if overload is None else overload.report(manifest),
        )

    def _wait_for_publication(self) -> None:
        """Wait until the previous batch is published; raise the error if it could not be."""
        publishing, self._publishing = self._publishing, None
        if publishing is not None:
            try:
                publishing.result()
            except SemistreamError:
                raise
            except Exception as error:
                name, kind = self._spec.name, type(error).__name__
                raise PipelineError(f"the pipeline {name!r} could not publish a batch: {kind}: {error}") from error
