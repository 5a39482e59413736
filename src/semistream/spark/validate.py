"""What can be said of a pipeline without running it, and all that is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistream.etl.spec import PipelineSpec
from semistream.etl.spec_file import read_spec
from semistream.spark.dry_plan import dry_plan


@dataclass(frozen=True)
class PipelineFacts:
    """What a valid pipeline is: its source, its relations with the operator and memory of each, and what comes out."""

    name: str
    source: str
    relations: list[dict[str, Any]]
    columns: dict[str, str]
    tables: dict[str, str]
    memory_bytes: int


def validate_pipeline(file: Path) -> PipelineFacts:
    """Check a pipeline's file, and say what it is. Nothing is written."""
    spec = read_spec(file)
    with dry_plan(spec) as plan:
        relations = [
            {
                "step": step.plan.link.label,
                "relation": str(step.path),
                "rows": None if step.new else step.relation.num_rows,
                "version": None if step.new else step.relation.version,
                "operator": step.plan.join.operator_for(step.relation).name,
                "memory_bytes": step.plan.join.memory_bytes,
            }
            for step in plan.steps
        ]
        columns = {field.name: str(field.type) for field in plan.columns}
        tables = {outcome: f"{table.format}: {table.place}" for outcome, table in spec.tables.items()}
        return PipelineFacts(spec.name, _source(spec), relations, columns, tables, plan.memory_bytes)


def check_without_spark(spec: PipelineSpec) -> None:
    """Refuse a pipeline for what can be seen before Spark runs: not what it computes, and what is joined by that."""
    if all(step.compute is None for step in spec.steps):
        with dry_plan(spec):
            pass


def _source(spec: PipelineSpec) -> str:
    source = spec.source
    place = getattr(source, "path", None) or getattr(source, "topic", None)
    return source.format if place is None else f"{source.format}: {place}"
