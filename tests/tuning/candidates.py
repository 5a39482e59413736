"""Made-up operators with known results for each memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from semistream.costs.key_frequencies import KeyFrequencies
from semistream.costs.machine import Machine
from semistream.costs.work import Work
from semistream.costs.workload import Workload
from semistream.errors import BudgetError
from semistream.relation import DiskCosts
from semistream.tuning.tuner import Arranged, Options, Tuner

ONE_SECOND = Machine("a second for each seek", DiskCosts(seek_s=1.0))

Rate = Callable[[int, Options], float]


@dataclass(frozen=True)
class KnownWork:
    """The model of an operator that takes ``rate`` tuples per second and lets ``waits`` of them wait, at the median."""

    rate: float
    waits: float
    hits: float = 0.0

    def work(self, workload: Workload, costs: DiskCosts) -> Work:  # noqa: ARG002
        seeks = 0.0 if math.isinf(self.rate) else 1 / self.rate
        return Work(
            seeks=seeks,
            pages=0.0,
            steps=0.0,
            probes=0.0,
            waits=self.waits,
            longest_wait=2 * self.waits,
            hits=self.hits,
        )


@dataclass(frozen=True)
class Known:
    """An operator that needs ``least`` bytes, takes ``rate(memory, options)`` and holds a tuple in each ``waiting``."""

    name: str
    least: int
    rate: Rate
    settings: Sequence[Options] = ({},)
    waiting: float = 100.0

    def arranged(self, memory_bytes: int, options: Options) -> Arranged:
        if memory_bytes < self.least:
            raise BudgetError(f"{self.name} needs {self.least} bytes.", least_bytes=self.least)
        model = KnownWork(self.rate(memory_bytes, options), waits=memory_bytes / self.waiting)
        return Arranged(model, {"all": memory_bytes})


def tuner(*candidates: Known, rate: float | None = None, **options: Any) -> Tuner:
    """A tuner that chooses among made-up operators."""
    workload = Workload(KeyFrequencies.uniform(1000), 1000, 10, 4096, rate=rate)
    return Tuner(workload, ONE_SECOND, candidates, **options)
