"""Predict the performance of a pipeline's joins before it runs, each in its share of the memory, on all workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from semistream.errors import InvalidArgument
from semistream.pipelines.plan.join_plan import MICRO_BATCH_ROWS
from semistream.pipelines.spec.pipeline_spec import PipelineSpec
from semistream.spark.joins.explain import SparkExplanation, explain_plan, explain_workers, owned_part
from semistream.spark.planning.validate import DryStep, dry_plan
from semistream.tuning.explanation import Explanation, require_rate


@dataclass(frozen=True)
class StepExplanation:
    """Operator that runs a joining step in each worker, and its prediction; if there is none, ``note`` says why."""

    step: str
    relation: Path
    operator: str
    explanation: SparkExplanation | None
    note: str = ""


@dataclass(frozen=True)
class PipelineExplanation:
    """Predictions for all joining steps, which share ``memory_bytes`` in each of the ``slots`` workers.

    ``route`` is the pipeline's routing: with ``range``, the ``routed`` prediction of the first step applies.
    """

    pipeline: str
    slots: int
    batch_rows: int
    memory_bytes: int
    route: str
    steps: tuple[StepExplanation, ...]

    @property
    def total_memory_bytes(self) -> int:
        """Bytes of all workers together."""
        return self.slots * self.memory_bytes

    def worker(self, number: int) -> Explanation | None:
        """Return the prediction for one worker in a step, as the pipeline is routed."""
        found = self.steps[number].explanation
        if found is None:
            return None
        return found.routed if self.route == "range" and number == 0 else found.worker

    @property
    def rate(self) -> float | None:
        """Rows per second through all steps with a prediction, which each worker runs one after the other."""
        return _in_a_row(self._rates(routed=self.route == "range"))

    @property
    def routed_rate(self) -> float | None:
        """Rows per second with ``route: range``."""
        return _in_a_row(self._rates(routed=True))

    def _rates(self, *, routed: bool) -> list[float]:
        known = [(i, step.explanation) for i, step in enumerate(self.steps) if step.explanation is not None]
        return [each.routed_rate if routed and i == 0 else each.rate for i, each in known]


def explain_pipeline(
    spec: PipelineSpec,
    *,
    slots: int,
    batch_rows: int = MICRO_BATCH_ROWS,
    rate: float | None = None,
    zipf: float = 0.0,
) -> PipelineExplanation:
    """Predict the performance of a pipeline on ``slots`` workers with micro-batches of ``batch_rows`` rows.

    ``rate`` is the input in rows per second. ``zipf`` is the skew of the keys, assumed to be the same for all joins.
    Nothing is written.
    """
    require_rate(rate)
    with dry_plan(spec, slots=slots) as plan:
        steps = tuple(_explain_step(step, slots, batch_rows, rate, zipf) for step in plan.steps)
        route = "range" if plan.steps[0].plan.join.cuts else "none"
        return PipelineExplanation(spec.name, slots, batch_rows, plan.memory_bytes, route, steps)


def _explain_step(step: DryStep, slots: int, batch_rows: int, rate: float | None, zipf: float) -> StepExplanation:
    label, plan = step.plan.link.label, step.plan.join
    part = owned_part(step.relation, plan.cuts)
    runs = plan.operator_for(part).name
    if not step.relation.num_pages:
        return StepExplanation(label, step.path, runs, None, "the relation has no rows yet, so nothing is read")
    predict = partial(explain_plan, plan, slots=slots, batch_rows=batch_rows, rate=rate, zipf=zipf)
    try:
        found = explain_workers(step.relation, predict, slots, batch_rows)
    except InvalidArgument as error:
        return StepExplanation(label, step.path, runs, None, str(error))
    return StepExplanation(label, step.path, runs, found)


def _in_a_row(rates: list[float]) -> float | None:
    """Return the rate of consecutive steps: their times per row add up.

    >>> _in_a_row([2.0, 2.0])
    1.0
    """
    return 1 / sum(1 / rate for rate in rates) if rates else None
