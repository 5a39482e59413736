"""Housekeeping: rows that wait no longer, old versions of relations, and files left by dead workers."""

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

_LOG = logging.getLogger(__name__)
_VACUUM_EVERY, _KEPT_VERSIONS = 16, 8  # batches; others that share a relation may still be at an older version


class Housekeeping:
    """Removes what finished batches leave behind."""

    def __init__(self, spec: PipelineSpec, ledger: Ledger, rows_folder: Path) -> None:
        self._spec, self._ledger, self._rows_folder = spec, ledger, rows_folder

    def after(self, plan: Plan, manifest: BatchManifest) -> None:
        """Clean up after a batch that is done; every few batches, old versions of relations go too."""
        self.forget_rows(plan, manifest)
        if plan.batch % _VACUUM_EVERY == _VACUUM_EVERY - 1:
            vacuum_relations(self._spec, _KEPT_VERSIONS)

    def forget_rows(self, plan: Plan, manifest: BatchManifest) -> None:
        """Remove files of rows that wait no longer, and files that dead tasks have left."""
        for name in plan.rejected:
            (self._ledger.updates_folder / name).unlink(missing_ok=True)
        kept = {file.path for file in manifest.waiting}
        for path in self._rows_folder.iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)  # a task of a dead driver may clean up as well


def vacuum_relations(spec: PipelineSpec, kept: int) -> None:
    """Remove all but the latest ``kept`` versions of the relations that a pipeline changes: each batch makes one."""
    parts = [step.join or step.keyed for step in spec.steps]
    for part in parts:
        if isinstance(part, KeyedStep) or (part is not None and part.updates is not None):
            try:
                Relation.open(part.relation).vacuum(kept)
            except RelationLocked:
                _LOG.info("%s is being written by another process; its old versions stay", part.relation)


def vacuum_pipeline(file: Path, kinds: Kinds = MappingProxyType({})) -> list[Path]:
    """Remove files that no table shows from all tables of a stopped pipeline.

    Files that an unfinished batch needs stay. ``kinds`` are the kinds of tables besides those that need no Spark.
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
