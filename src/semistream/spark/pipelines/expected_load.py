"""How many rows a batch of the source has, from the offsets that Spark has written down for it.

What batches of a pipeline are expected to take before one was measured.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from semistream.costs.profiles import machine_for
from semistream.errors import BudgetError
from semistream.joins.condition.spec import JoinSpec
from semistream.pipelines.overload.service_times import PRIOR, ServiceModel
from semistream.relation import Relation
from semistream.spark.joins.explain import MICRO_BATCH_ROWS
from semistream.spark.joins.join_plan import JoinPlan
from semistream.spark.joins.routing import part_bounds
from semistream.spark.planning.step_plans import StepPlans
from semistream.tuning.candidates import join_tuner
from semistream.tuning.explain import workload_of


def rows_by_offsets(checkpoint: Path, source_batch: int) -> int | None:
    """Offsets of a batch beyond those of the batch before, for sources that number their rows.

    A topic may have offsets without a message: there are no more rows than that. None if it is not known, as of the
    first batch; ``checkpoint`` is Spark's folder.
    """
    now = _offsets(checkpoint / "offsets" / str(source_batch))
    before = _offsets(checkpoint / "offsets" / str(source_batch - 1))
    if now is None or before is None or set(before) - set(now):
        return None
    return sum(max(end - before.get(part, 0), 0) for part, end in now.items())


def _offsets(path: Path) -> dict[str, int] | None:
    """The numbers of an entry of Spark's log, by where they stand in it."""
    try:
        *_, last = path.read_text().strip().splitlines()
        return dict(_numbers(json.loads(last), ""))
    except (OSError, ValueError):
        return None


def _numbers(value: Any, place: str) -> list[tuple[str, int]]:
    if isinstance(value, bool) or not isinstance(value, int | dict):
        raise ValueError(f"an offset is {value!r}")
    if isinstance(value, int):
        return [(place, value)]
    return [each for name, inner in value.items() for each in _numbers(inner, f"{place}/{name}")]


_BESIDE_S = 2e-6  # of a row in a task, to be read, checked and written
_SHED_S = 6e-7  # of one that goes to the archive
_COPIED_S = 3e-8  # of one that goes there in a file that is copied


def expected_times(steps: StepPlans, *, copies: bool) -> ServiceModel:
    """What the cost model says of the joins, and what rows take besides; what is usual where nothing can be said.

    Joins differ by orders of magnitude, with the memory, the disk and R: they are what is predicted. Keys are taken to
    be asked for equally often, so that a stream with hot ones is faster. All tasks that run at a time share the rest.
    Where the archive ``copies`` whole files, rows that are shed take next to nothing.
    """
    shed_s = (_COPIED_S if copies else _SHED_S) / steps.slots
    known = [seconds for step in steps.steps if (seconds := _row_s(step.join, steps.slots)) is not None]
    if not known:
        return replace(PRIOR, shed_s=min(shed_s, PRIOR.shed_s))
    return ServiceModel(PRIOR.fixed_s, sum(known) + _BESIDE_S / steps.slots, shed_s)


def _row_s(plan: JoinPlan, slots: int) -> float | None:
    """Seconds for a row in a join on all workers, which share the disk, while each has a core of its own.

    None if the model does not know: of a relation without rows, and of conditions other than equality with its key.
    """
    relation = Relation.open(plan.path)
    if plan.access != "equality" or not relation.num_pages:
        return None
    given: dict[str, Any] = dict(plan.arguments)
    part = relation.part(*part_bounds(plan.cuts, 0)) if plan.cuts else relation
    spec = JoinSpec.of(
        part,
        plan.stream_schema,
        on=None if given["on"] is None else dict(given["on"]),
        where=list(given["where"]) or None,
        how=given["how"],
        columns=given["columns"],
        suffix=given["suffix"],
    )
    workload = workload_of(part, spec, zipf=0.0, batch_rows=MICRO_BATCH_ROWS / slots)
    tuner = join_tuner(part, spec, workload, machine_for(relation.path))
    try:
        name = tuner.chosen(plan.memory_bytes).operator if plan.holds_small else plan.operator.name
        found = next((each for each in tuner.choices(plan.memory_bytes) if each.operator == name), None)
    except BudgetError:
        return None
    return None if found is None else max(found.disk_s, found.processor_s / slots)
