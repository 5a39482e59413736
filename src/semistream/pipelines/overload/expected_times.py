"""Expected service times of a pipeline's batches, before any is measured."""

from __future__ import annotations

from dataclasses import replace

from semistream.costs.profiles import machine_for
from semistream.errors import BudgetError
from semistream.pipelines.overload.service_times import PRIOR, ServiceModel
from semistream.pipelines.plan.join_plan import MICRO_BATCH_ROWS, JoinPlan
from semistream.pipelines.plan.key_ranges import part_bounds
from semistream.pipelines.plan.step_plans import StepPlans
from semistream.relation import Relation
from semistream.tuning.candidates import join_tuner
from semistream.tuning.explain import workload_of

_BESIDE_S = 2e-6  # seconds of a row in a task besides joins: reading, checking, writing
_SHED_S = 6e-7  # seconds of a row written to the archive
_COPIED_S = 3e-8  # seconds of a row archived in a copied file


def expected_times(steps: StepPlans, *, copies: bool) -> ServiceModel:
    """Return the predicted times of the joins plus the usual costs of rows; `PRIOR` if no join can be predicted.

    Join times differ by orders of magnitude with the memory, the disk and R, so the cost model predicts them. It
    assumes equally frequent keys, so a stream with hot keys is faster. The other costs are divided by the tasks that
    run at a time. If the archive ``copies`` whole files, shed rows cost almost nothing.
    """
    shed_s = (_COPIED_S if copies else _SHED_S) / steps.slots
    known = [seconds for step in steps.steps if (seconds := _row_s(step.join, steps.slots)) is not None]
    if not known:
        return replace(PRIOR, shed_s=min(shed_s, PRIOR.shed_s))
    return ServiceModel(PRIOR.fixed_s, sum(known) + _BESIDE_S / steps.slots, shed_s)


def _row_s(plan: JoinPlan, slots: int) -> float | None:
    """Return the seconds per row of a join on all workers, which share the disk but have a core each.

    None if the model cannot predict it: without rows in R, without equality on R's key, or with too little memory.
    """
    relation = Relation.open(plan.path)
    if plan.access != "equality" or not relation.num_pages:
        return None
    part = relation.part(*part_bounds(plan.cuts, 0)) if plan.cuts else relation
    spec = plan.spec(part)
    workload = workload_of(part, spec, zipf=0.0, batch_rows=MICRO_BATCH_ROWS / slots)
    tuner = join_tuner(part, spec, workload, machine_for(relation.path))
    try:
        found = tuner.best_of(plan.operator_for(part).name, plan.memory_bytes)
    except BudgetError:
        return None
    return None if found is None else max(found.disk_s, found.processor_s / slots)
