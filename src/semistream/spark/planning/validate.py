"""Validate a pipeline: plan it as a run would, without reading its source or writing anything that stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from semistream.pipelines.open_tables import table_kind
from semistream.pipelines.plan.step_plans import StepPlan, StepPlans, plan_steps
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.pipelines.spec.source_spec import FileSource
from semistream.pipelines.spec.yaml_file import read_spec
from semistream.relation import Relation
from semistream.spark.kafka.topic_table import KINDS
from semistream.spark.planning.computed_columns import ComputedColumns
from semistream.spark.session import LOCAL_SETTINGS, quiet_session
from semistream.spark.sources.files import require_folder


@dataclass(frozen=True)
class DryStep:
    """A joining step and its relation. A ``new`` relation does not exist yet: a run would create it at ``path``."""

    plan: StepPlan
    relation: Relation
    path: Path
    new: bool


@dataclass(frozen=True)
class DryPlan:
    """Joining steps of a pipeline, the columns of its results, and the memory of one worker."""

    steps: tuple[DryStep, ...]
    columns: pa.Schema
    memory_bytes: int


@contextmanager
def dry_plan(spec: PipelineSpec, *, slots: int = 1) -> Iterator[DryPlan]:
    """Check the source, relations, columns, memory and packages of a pipeline without running it.

    Missing key relations are created in a temporary folder and removed after the block. Spark starts only for a
    pipeline with computed columns.
    """
    if isinstance(spec.source, FileSource):
        require_folder(spec.source.path)
    for join in (step.join for step in spec.steps):
        if join is not None and join.updates is not None and join.updates.path is not None:
            require_folder(join.updates.path)
    for table in spec.tables.values():
        table_kind(table, KINDS)
    with TemporaryDirectory(prefix="semistream-") as folder:
        aside = _made_aside(spec, Path(folder))
        steps, columns = _planned(aside, slots)
        yield DryPlan(
            tuple(
                DryStep(plan, Relation.open(plan.join.path), path, new=path != own)
                for plan, path, own in zip(steps.steps, spec.relations, aside.relations, strict=True)
            ),
            columns,
            sum(plan.join.memory_bytes for plan in steps.steps),
        )


def _planned(spec: PipelineSpec, slots: int) -> tuple[StepPlans, pa.Schema]:
    if all(step.compute is None for step in spec.steps):
        steps = plan_steps(spec, spec.source.arrow_schema, slots)
        return steps, steps.joined
    with quiet_session("semistream", "local[1]", log=Path(os.devnull), settings=LOCAL_SETTINGS) as spark:
        computed = ComputedColumns.of(spec, spark)
        steps = plan_steps(spec, computed.entering, slots)
        return steps, computed.leaving(steps.joined, spark)


def _made_aside(spec: PipelineSpec, folder: Path) -> PipelineSpec:
    """Return the pipeline with its missing key relations moved to ``folder``."""
    content: dict[str, Any] = spec.model_dump(by_alias=True, exclude_unset=True)
    for number, (step, given) in enumerate(zip(spec.steps, content["steps"], strict=True)):
        if step.keyed is not None and not (step.keyed.relation / "CURRENT").exists():
            (kind,) = given
            given[kind]["relation"] = folder / str(number) / step.keyed.relation.name
    return PipelineSpec.model_validate(content)


@dataclass(frozen=True)
class PipelineFacts:
    """Summary of a valid pipeline: source, relations with their operators and memory, result columns and tables."""

    name: str
    source: str
    relations: list[dict[str, Any]]
    columns: dict[str, str]
    tables: dict[str, str]
    memory_bytes: int


def validate_pipeline(file: Path) -> PipelineFacts:
    """Check a pipeline's file and summarize it, without writing anything."""
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
    """Check a pipeline before Spark starts. One with computed columns is not checked: their types need Spark."""
    if all(step.compute is None for step in spec.steps):
        with dry_plan(spec):
            pass


def _source(spec: PipelineSpec) -> str:
    source = spec.source
    place = getattr(source, "path", None) or getattr(source, "topic", None)
    return source.format if place is None else f"{source.format}: {place}"
