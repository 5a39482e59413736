"""A source, a service and a clock for the overload controller, in place of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from semistream.pipelines.overload.controller import OverloadController
from semistream.pipelines.overload.service_times import PRIOR, ServiceModel

CAPACITY = 100_000.0
"""Rows a second that the service joins, without the fixed time of a batch."""


@dataclass(frozen=True)
class World:
    """Rows come at ``rate(t)`` times the capacity; a batch takes a fixed time and one for each row, times ``slow(t)``.

    When it begins, rows for ``backlog_s`` seconds of the service wait, the first of them for ``backlog_age_s``. Its
    first batch takes ``start_s`` more. The wall clock, which ages are told by, is ``wall(t)``; measured times vary by
    ``noise``.
    """

    rate: Callable[[float], float]
    goal_s: float = 30.0
    every_s: float = 1.0
    fixed_s: float = 0.8
    gap_s: float = 0.3
    shed_share: float = 0.02
    slow: Callable[[float], float] = lambda _: 1.0
    wall: Callable[[float], float] = lambda t: t
    noise: float = 0.05
    backlog_s: float = 0.0
    backlog_age_s: float = 0.0
    start_s: float = 0.0

    @property
    def service(self) -> ServiceModel:
        """Time of batches, without noise."""
        return ServiceModel(self.fixed_s, 1 / CAPACITY, self.shed_share / CAPACITY)


@dataclass(frozen=True)
class Run:
    """For each batch: its begin, rows, joined rows, seconds, and the latency of its oldest row."""

    at: np.ndarray
    rows: np.ndarray
    joined: np.ndarray
    seconds: np.ndarray
    latency_s: np.ndarray

    def after(self, second: float) -> Run:
        """The batches from some time on."""
        late = self.at >= second
        return Run(*(column[late] for column in (self.at, self.rows, self.joined, self.seconds, self.latency_s)))

    @property
    def joined_per_s(self) -> float:
        return float(self.joined[:-1].sum() / (self.at[-1] - self.at[0]))

    @property
    def shed(self) -> int:
        return int((self.rows - self.joined).sum())

    def p95_s(self) -> float:
        return float(np.percentile(self.latency_s, 95))


def expected(world: World, times: float = 1.0) -> ServiceModel:
    """Return the model before anything is measured; joined rows cost ``times`` their real cost."""
    return replace(world.service, joined_s=times * world.service.joined_s)


def simulate(
    world: World, until_s: float = 400.0, seed: int = 0, prior: ServiceModel = PRIOR
) -> tuple[Run, OverloadController]:
    """Run batches one after the other, each of all rows that have arrived, within the controller's limits."""
    draw = np.random.default_rng(seed)
    now = 0.0
    controller = OverloadController(world.goal_s, world.every_s, lambda: now, prior=prior)
    taken_in, done = -world.backlog_age_s, []
    while now < until_s:
        at = now
        steps = np.linspace(taken_in, at, 33)
        middle = (steps[1:] + steps[:-1]) / 2
        rows = int(sum(world.rate(t) for t in middle.tolist()) / 32 * CAPACITY * (at - taken_in))
        rows = rows if done else int(world.backlog_s * CAPACITY)
        controller.begin()
        joined = controller.allow(rows, oldest_s=world.wall(at) - world.wall(taken_in))
        work_s = world.service.seconds(joined, rows - joined) + (0.0 if done else world.start_s)
        now = at + work_s * world.slow(at) * float(np.clip(draw.normal(1, world.noise), 0.5, 2))
        controller.end(joined=joined, shed=rows - joined)
        done.append((at, rows, joined, now - at, now - taken_in))
        taken_in = at
        now = max(now + world.gap_s, at + world.every_s)
    return Run(*np.array(done, np.float64).T), controller
