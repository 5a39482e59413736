"""Prediction: the expected performance of an operator in a given memory, from its model and the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from semistream.costs.machine import Machine
from semistream.costs.work import OperatorModel, Work
from semistream.costs.workload import Workload

_WAITING = 2.0  # exponent: 1 if disk and processor always waited for each other, infinite if they never did


@dataclass(frozen=True)
class Prediction:
    """Expected performance of an ``operator`` with ``memory_bytes`` and its ``options``: ``rate`` tuples per second.

    A tuple costs ``disk_s`` seconds of the disk and ``processor_s`` of the processor. With read-ahead the two overlap
    (`_together_s`), except for the processor time during which nothing is read; without, they add up.

    Half of the tuples have their results after ``median_latency_s`` and all after ``worst_latency_s``, if they arrive
    at the rate of the workload and are pushed on arrival. Both are infinite if tuples arrive faster than ``rate``,
    because the backlog grows without bound.
    """

    operator: str
    memory_bytes: int
    rate: float
    disk_s: float
    processor_s: float
    hit_rate: float
    median_latency_s: float
    worst_latency_s: float
    work: Work
    options: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def bound_by(self) -> str:
        """The resource that bounds the rate: ``"disk"`` or ``"processor"``."""
        return "disk" if self.disk_s > self.processor_s else "processor"


def predict(
    operator: str,
    model: OperatorModel,
    workload: Workload,
    machine: Machine,
    *,
    memory_bytes: int,
    options: Mapping[str, float] | None = None,
) -> Prediction:
    """Predict the performance of an operator on a machine, from its ``model`` in ``memory_bytes``."""
    work = model.work(workload, machine.disk)
    disk_s = machine.disk_s(work, workload)
    processor_s = machine.processor_s(operator, work, workload)
    alone_s = machine.alone_s(operator, work, workload)
    overlapped_s = alone_s + _together_s(disk_s, processor_s - alone_s)
    taken_s = overlapped_s if work.reads_ahead else disk_s + processor_s
    rate = 1 / taken_s if taken_s > 0 else math.inf
    arrivals = rate if workload.rate is None else workload.rate
    keeps_up = arrivals <= rate
    return Prediction(
        operator=operator,
        memory_bytes=memory_bytes,
        rate=rate,
        disk_s=disk_s,
        processor_s=processor_s,
        hit_rate=work.hits,
        median_latency_s=work.waits / arrivals if keeps_up else math.inf,
        worst_latency_s=work.longest_wait / arrivals if keeps_up else math.inf,
        work=work,
        options=MappingProxyType(dict(options or {})),
    )


def _together_s(disk_s: float, processor_s: float) -> float:
    """Return the time of a disk and a processor that work in parallel and at times wait for each other.

    This is the longer of the two times, and up to two fifths more if they are equal: few runs are read ahead, so fast
    runs do not make up for a slow one, and both compete for the memory bus. The exponent was measured on runs of the
    sweep with 1 to 25 % of R's bytes as memory, on an otherwise idle machine. A virtual machine whose disk is served by
    the same processor may at times do one after the other.
    """
    less, more = sorted((disk_s, processor_s))
    return more * float((1 + (less / more) ** _WAITING) ** (1 / _WAITING)) if more > 0 else 0.0
