"""What batches of a pipeline are expected to take before one was measured."""

from __future__ import annotations

from semistream.etl.service_times import PRIOR, ServiceModel
from semistream.spark.pipeline_outlook import expected_rate
from semistream.spark.step_plans import StepPlans

_BESIDE_S = 2e-6  # of a row in a task, to be read, checked and written
_SHED_S = 6e-7  # of one that goes to the archive


def expected_times(steps: StepPlans) -> ServiceModel:
    """What the cost model says of the joins, and what rows take besides; what is usual where nothing can be said.

    Joins differ by orders of magnitude, with the memory, the disk and R, and are what is predicted. All tasks that run
    at a time share the rest.
    """
    rate = expected_rate(steps)
    if rate is None:
        return PRIOR
    return ServiceModel(PRIOR.fixed_s, 1 / rate + _BESIDE_S / steps.slots, _SHED_S / steps.slots)
