"""Housekeeping: remove files of rows that no longer wait, old versions of relations, and files of dead workers."""

from __future__ import annotations

import logging
from pathlib import Path
from types import MappingProxyType

from semistream.errors import RelationLocked
from semistream.pipelines.ledger.entries import BatchManifest, Plan
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.open_tables import OUTBOX, Kinds, table_kind
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.step_spec import KeyedStep
from semistream.pipelines.spec.yaml_file import read_spec
from semistream.pipelines.tables.quarantine import INVALID_SCHEMA
from semistream.pipelines.tables.table import Owner
from semistream.relation import Relation
from semistream.storage.local_files import sync_folder

_LOG = logging.getLogger(__name__)
_VACUUM_EVERY, _KEPT_VERSIONS = 16, 8  # other pipelines may still use old versions of a shared relation


class Housekeeping:
    """Clean-up after finished batches."""

    def __init__(self, spec: PipelineSpec, ledger: Ledger, rows_folder: Path) -> None:
        self._spec, self._ledger, self._rows_folder = spec, ledger, rows_folder

    def after(self, plan: Plan, manifest: BatchManifest) -> None:
        """Clean up after a finished batch; every 16th batch, also remove old versions of relations."""
        self.forget_rows(plan, manifest)
        if plan.batch % _VACUUM_EVERY == _VACUUM_EVERY - 1:
            vacuum_relations(self._spec, _KEPT_VERSIONS)

    def forget_rows(self, plan: Plan, manifest: BatchManifest) -> None:
        """Remove the batch's rejected updates, and all files of rows but those that still wait.

        Rejected updates are gone for good before the next batch is planned: it would take them to the quarantine again.
        """
        for name in plan.rejected:
            (self._ledger.updates_folder / name).unlink(missing_ok=True)
        if plan.rejected:
            sync_folder(self._ledger.updates_folder)
        kept = {file.path for file in manifest.waiting}
        for path in self._rows_folder.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)  # a task of a dead driver may remove it at the same time


def vacuum_relations(spec: PipelineSpec, kept: int) -> None:
    """Remove all but the latest ``kept`` versions of the relations that a pipeline changes, one per batch."""
    parts = [step.join or step.keyed for step in spec.steps]
    for part in parts:
        if isinstance(part, KeyedStep) or (part is not None and part.updates is not None):
            try:
                Relation.open(part.relation).vacuum(kept, wait_s=0)
            except RelationLocked:
                _LOG.info("another process is writing %s; its old versions are kept", part.relation)


def vacuum_pipeline(file: Path, kinds: Kinds = MappingProxyType({})) -> list[Path]:
    """Remove uncommitted files from all tables of a stopped pipeline; return their paths.

    Files that an unfinished batch needs are kept. ``kinds`` has the table kinds that need Spark.
    """
    spec = read_spec(file)
    removed: list[Path] = []
    with Ledger.open(spec.checkpoint, spec.name) as ledger:
        plan = ledger.open_plan
        parts = [] if plan is None else ledger.staged(plan.batch)
        manifest = None if plan is None else ledger.prepared(plan.batch)
        works = parts if manifest is None else [*parts, manifest.work]
        for outcome, table in spec.tables.items():
            folder = spec.checkpoint / OUTBOX / outcome if table.path is None else table.path
            if not folder.exists():
                continue
            in_use = {written.path for work in works for written in work.files.get(outcome, [])}
            unpartitioned = table.model_copy(update={"partition_by": ()})
            owner = Owner(spec.name, ledger.token)
            removed += table_kind(table, kinds)(unpartitioned, INVALID_SCHEMA, owner, folder).vacuum(in_use)
    return removed
