"""What can be said of a pipeline without running it, and all that is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistream.budget import parse_bytes
from semistream.etl.spec_file import read_spec
from semistream.relation import Relation
from semistream.spark.step_plans import plan_steps


@dataclass(frozen=True)
class PipelineFacts:
    """What a valid pipeline is: its source, its relations with the operator and memory of each, and what comes out."""

    name: str
    source: str
    relations: list[dict[str, Any]]
    columns: dict[str, str]
    memory_bytes: int


def validate_pipeline(file: Path) -> PipelineFacts:
    """Check a pipeline's file as far as it goes without Spark; columns that Spark computes are not among those."""
    spec = read_spec(file)
    plans = plan_steps(spec, spec.source.arrow_schema)
    relations = []
    for step in plans.steps:
        relation = Relation.open(step.join.path)
        relations.append(
            {
                "step": step.link.label,
                "relation": step.join.path,
                "rows": relation.num_rows,
                "version": relation.version,
                "operator": step.join.operator.name,
                "memory_bytes": dict(step.join.arguments)["memory"],
            }
        )
    largest = max(Relation.open(step.join.path).nbytes for step in plans.steps)
    columns = {field.name: str(field.type) for field in plans.joined}
    memory = parse_bytes(spec.memory, of=max(largest, 1))
    return PipelineFacts(spec.name, f"{spec.source.format}", relations, columns, memory)
