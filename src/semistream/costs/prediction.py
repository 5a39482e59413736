"""Prediction: what a model and a machine say of an operator in a memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from semistream.costs.machine import Machine
from semistream.costs.work import OperatorModel, Work
from semistream.costs.workload import Workload

_WAITING = 2.0  # 1 if one always waited for the other, without end if neither ever did


@dataclass(frozen=True)
class Prediction:
    """An ``operator`` with ``memory_bytes`` and ``options`` of its own is expected to take ``rate`` tuples per second.

    A tuple takes ``disk_s`` of the disk and ``processor_s`` of the processor; if R is read ahead, the longer of the two
    is about what it takes (`_together_s`), but for what is done while nothing is read; else both. Half of the tuples
    have their results after ``median_latency_s`` and all after ``worst_latency_s``, if they come at the rate of the
    workload, and are pushed as they come. If they come faster than they are taken, more and more of them wait, and
    there is no bound.
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
        """What a tuple waits for: ``"disk"`` or ``"processor"``."""
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
    """What an operator whose arrangement is ``model`` is expected to do on a machine."""
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
    """What both take that work at the same time, and now and then wait for each other.

    That is the longer of the two, and two fifths more if they are alike: few runs are read ahead, so that a slow one is
    not made up for by fast ones, and both use the memory's bus. The exponent was measured, on runs of the sweep at 1 to
    25 % of R's bytes as memory while others left the machine alone. A virtual machine whose disk is served by the same
    processor may do one after the other at times.
    """
    less, more = sorted((disk_s, processor_s))
    return more * float((1 + (less / more) ** _WAITING) ** (1 / _WAITING)) if more > 0 else 0.0
