"""BatchCommitter: make the results of a batch visible, once, and mark the batch done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semistream.pipelines.ledger.entries import BatchManifest, Plan
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.overload.batch_overload import BatchOverload
from semistream.pipelines.plan.step_plans import StepPlans
from semistream.pipelines.steps.snapshot_changes import publish_snapshot
from semistream.pipelines.tables.table import Table
from semistream.relation import Relation, Transaction


class BatchCommitter:
    """Committer of prepared batches. Each commit is idempotent, so it may be repeated after a crash."""

    def __init__(
        self,
        steps: StepPlans,
        tables: Mapping[str, Table],
        ledger: Ledger,
        rows_folder: Path,
        overload: BatchOverload | None,
    ) -> None:
        self._steps, self._tables, self._ledger = steps, tables, ledger
        self._rows_folder, self._overload = rows_folder, overload

    def restore(self) -> None:
        """Publish done batches again that a power cut has taken from a table."""
        done = [manifest for manifest in self._ledger.manifests() if self._ledger.is_done(manifest.batch)]
        for outcome, table in self._tables.items():
            table.restore([(manifest.batch, manifest.work.files.get(outcome, [])) for manifest in done])

    def commit(self, plan: Plan, manifest: BatchManifest, *, resumed: bool) -> None:
        """Commit every table, the snapshot and the archive, then mark the batch done.

        A ``resumed`` batch teaches nothing about service times, because this process did not do all of its work.
        """
        for outcome, table in self._tables.items():
            reached(f"before commit of {outcome}")
            table.commit(plan.batch, manifest.work.files.get(outcome, []))
        if self._steps.changes is not None:
            relation = Relation.open(self._steps.paths[0])
            publish_snapshot(relation, manifest.work, self._rows_folder, Transaction(self._ledger.writer, plan.batch))
        learnt: dict[str, Any] | None = None
        if self._overload is not None:
            self._overload.settle(plan, manifest)
            learnt = self._overload.learn(plan, manifest, all_here=not resumed)
        self._ledger.write_done(plan.batch, learnt)
