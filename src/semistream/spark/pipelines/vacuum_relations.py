"""Files that dead workers have left: no table shows them, and nothing needs them."""

from __future__ import annotations

import logging
from pathlib import Path

from semistream.errors import RelationLocked
from semistream.pipelines.ledger.ledger import Ledger
from semistream.pipelines.open_tables import OUTBOX, table_kind
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.step_spec import KeyedStep
from semistream.pipelines.spec.yaml_file import read_spec
from semistream.pipelines.tables.quarantine import INVALID_SCHEMA
from semistream.pipelines.tables.table import Owner
from semistream.relation import Relation
from semistream.spark.kafka.topic_table import KINDS

_LOG = logging.getLogger(__name__)


def vacuum_relations(spec: PipelineSpec, kept: int) -> None:
    """Remove old versions but for some of relations that a pipeline changes: each batch makes one."""
    parts = [step.join or step.keyed for step in spec.steps]
    for part in parts:
        if isinstance(part, KeyedStep) or (part is not None and part.updates is not None):
            try:
                Relation.open(part.relation).vacuum(kept)
            except RelationLocked:
                _LOG.info("%s is being written by another process; its old versions stay", part.relation)


def vacuum_pipeline(file: Path) -> list[Path]:
    """Remove them from all tables of a pipeline that does not run; what a batch that is not done needs stays."""
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
            removed += table_kind(table, KINDS)(unpartitioned, INVALID_SCHEMA, owner, folder).vacuum(in_use)
    return removed
