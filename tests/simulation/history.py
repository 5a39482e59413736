"""Histories: events drawn from a seed, run one after the other, and checked against an oracle."""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import yaml

from semistream.kernels.array_types import Floats
from semistream.pipelines.batch.housekeeping import vacuum_pipeline
from tests.faults.overload_scenario import OverloadScenario
from tests.faults.snapshot_scenario import SnapshotScenario
from tests.simulation.runner import Fault, LocalRunner, Runner, full_disk
from tests.simulation.scenarios import POISONS, AuditScenario, SimulatedOrders, vacuum_relations
from tests.simulation.world import Kill, World

Plot = Literal["orders", "deferred orders", "overload", "snapshots"]
"""What a history is about."""
_EVENTS: dict[str, dict[str, float]] = {
    "orders": {
        "grow": 3, "update": 2, "storm": 1, "poison": 1, "run": 6, "audit": 3,
        "vacuum tables": 1, "clock": 1,
    },
    "deferred orders": {"grow": 3, "update": 2, "storm": 1, "run": 6, "clock": 2},
    "overload": {"grow": 3, "run": 5, "reconcile": 3, "vacuum tables": 1, "clock": 1},
    "snapshots": {"grow": 3, "run": 5, "vacuum tables": 1},
}  # fmt: skip
_RUNS = ("run", "audit", "reconcile")
_FAULTS = ("driver", "worker", "driver of tasks", "disk", "none")
_GROWS, _VACUUMS = 0.4, 0.2  # shares of runs before which something comes, and after which others vacuum
_LENGTHS = (4, 14)  # events of a history, at least and below
_MOST_STEPS = 260  # of a killed driver: about as many as one batch has
_STORM = 12  # updates that come while a driver reads updates
_DISK_BYTES = 20_000
_DAY_S = 86_400.0


def _draw_fault(draw: np.random.Generator, shares: Floats) -> Fault:
    """Draw a fault; ``shares`` are the probabilities of `_FAULTS`."""
    slots, late, kind = int(draw.integers(1, 4)), bool(draw.random() < 0.5), str(draw.choice(_FAULTS, p=shares))
    if kind == "driver":  # often early: during recovery
        return Fault(slots, late, Kill("driver", int(_MOST_STEPS ** draw.random())))
    if kind == "worker":
        return Fault(slots, late, Kill("worker", int(draw.integers(30))))
    if kind == "driver of tasks":
        return Fault(slots, late, Kill("driver of tasks", int(draw.integers(3))))
    if kind == "disk":
        return Fault(slots, late, disk_bytes=int(_DISK_BYTES ** draw.random()))
    return Fault(slots, late)


@dataclass(frozen=True)
class Event:
    """An event of a ``kind``, with a random ``number`` for its details; a run also has a fault."""

    kind: str
    number: int
    fault: Fault

    def generator(self) -> np.random.Generator:
        """Return the generator of its details, the same each time."""
        return np.random.default_rng(self.number)

    def __str__(self) -> str:
        return f"{self.kind} ({self.fault})" if self.kind in _RUNS else self.kind


@dataclass(frozen=True)
class History:
    """Events of one ``seed``; some may be left out.

    Each history has its own shares of events and faults, so that some have many of one kind.
    """

    seed: int
    plot: Plot
    events: tuple[Event, ...]

    @classmethod
    def draw(cls, seed: int) -> History:
        """Draw a history."""
        draw = np.random.default_rng(seed)
        plot = cast("Plot", str(draw.choice(get_args(Plot), p=[0.5, 0.2, 0.2, 0.1])))
        kinds = _EVENTS[plot]
        events = _shares(draw, kinds.values())
        faults = _shares(draw, np.ones(len(_FAULTS)))
        chosen = map(str, draw.choice(list(kinds), size=int(draw.integers(*_LENGTHS)), p=events))
        return cls(
            seed,
            plot,
            tuple(Event(kind, int(draw.integers(1 << 31)), _draw_fault(draw, faults)) for kind in chosen),
        )

    def only(self, kept: Sequence[int]) -> History:
        """Return a history of the events at the positions ``kept``."""
        return History(self.seed, self.plot, tuple(self.events[i] for i in kept))

    def run(self, folder: Path, runner_of: Callable[[World], Runner] = LocalRunner) -> list[str]:
        """Run all events below ``folder``, and check the end; return the steps. Any error is one of semistream's."""
        world = World(folder, self.seed)
        runner = runner_of(world)
        with runner.set_up():
            try:
                played = _Played(world, runner, self.plot, self.seed)
                for event in self.events:
                    played.play(event)
                played.end()
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return world.steps


class _Played:
    """A history as it goes on."""

    def __init__(self, world: World, runner: Runner, plot: Plot, seed: int) -> None:
        self._world, self._runner = world, runner
        self._audit: AuditScenario | None = None
        self._scenario: SimulatedOrders | OverloadScenario | SnapshotScenario
        if plot in ("orders", "deferred orders"):
            self._scenario = SimulatedOrders(world.folder, seed, "10m" if plot == "deferred orders" else None)
            self._audit = AuditScenario(self._scenario)
        elif plot == "overload":
            self._scenario = OverloadScenario(world.folder)
        else:
            self._scenario = SnapshotScenario(world.folder, seed)

    def play(self, event: Event) -> None:
        """Let an event happen, and look at the tables after a run."""
        if event.kind == "grow":
            self._grow()
        elif event.kind == "clock":
            self._world.now += float(event.generator().normal(0, 1000))
        elif event.kind == "vacuum tables":
            self._vacuum_tables()
        elif event.kind in _RUNS:
            self._run_event(event)
        else:
            orders = self._scenario
            assert isinstance(orders, SimulatedOrders)
            if event.kind == "update":
                orders.put_update()
            elif event.kind == "storm":
                self._storm(orders)
            else:
                assert event.kind == "poison", event.kind
                orders.put_poison(str(event.generator().choice(POISONS)))

    def _run_event(self, event: Event) -> None:
        """Bring new input, or not; run a pipeline; and let others vacuum the relations, or not."""
        scenario, draw = self._scenario, event.generator()
        if draw.random() < _GROWS:
            self._grow()
        if isinstance(scenario, SimulatedOrders) and draw.random() < _GROWS:
            scenario.put_update()
        if event.kind == "audit":
            assert self._audit is not None
            self._runner.run(self._audit.spec(), event.fault)
        else:
            self._runner.run(scenario.spec(), event.fault, only_repair=event.kind == "reconcile")
            scenario.look()
        if draw.random() < _VACUUMS:
            vacuum_relations(self._world.folder)

    def _grow(self) -> None:
        if isinstance(self._scenario, SimulatedOrders):
            self._scenario.put_orders()
        else:
            self._scenario.grow()

    def end(self) -> None:
        """Let the pipelines go on without faults until nothing is left, and check all tables."""
        scenario = self._scenario
        self._world.now += _DAY_S  # after rows that came while the clock was ahead
        self._grow()
        for spec in (scenario.spec(), scenario.spec(retry_for="1ms")):
            self._runner.finish(spec)
        if isinstance(scenario, OverloadScenario):
            self._runner.finish(scenario.spec(), only_repair=True)
        scenario.check()
        if self._audit is not None:
            self._runner.finish(self._audit.spec())
            self._audit.check()
        self._vacuum_tables()
        scenario.check()

    def _storm(self, orders: SimulatedOrders) -> None:
        """Bring an update whenever a driver reads one, for a while."""
        left = [None] * _STORM

        def more() -> None:
            if left:
                left.pop()
                with full_disk(resource.RLIM_INFINITY):  # others have a disk of their own
                    orders.put_update()

        orders.put_update()
        self._world.while_reading_updates = more

    def _vacuum_tables(self) -> None:
        """Remove the files of dead processes, as `semistream vacuum` does."""
        file = self._world.folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(self._scenario.spec()))
        vacuum_pipeline(file)


def _shares(draw: np.random.Generator, weights: Iterable[float]) -> Floats:
    """Return shares with a mean in proportion to ``weights``, of which some are large and some near 0."""
    drawn = np.array(list(weights)) * draw.exponential(size=len(list(weights))) ** 2 + 1e-9
    return np.asarray(drawn / drawn.sum())


def shortest(history: History, fails: Callable[[History], bool]) -> list[int]:
    """Return the positions of the fewest events, found by leaving some out, with which a history still fails."""
    kept = list(range(len(history.events)))
    size = max(len(kept) // 2, 1)
    while size:
        begin = 0
        while begin < len(kept):
            fewer = kept[:begin] + kept[begin + size :]
            if fails(history.only(fewer)):
                kept = fewer
            else:
                begin += size
        size //= 2
    return kept


def tried(seed: int, until: float) -> tuple[str, str] | None:
    """Run a history unless the time is over; return what it is about, and how it failed with the fewest events."""
    if time.time() > until:
        return None
    history = History.draw(seed)
    with tempfile.TemporaryDirectory(prefix="semistream-simulation-") as folder:
        error = error_of(history, Path(folder))
        if error is None:
            return history.plot, ""
        kept = shortest(history, lambda fewer: _is_like(error_of(fewer, Path(folder)), error))
    lines = [f"seed {seed} ({history.plot}) FAILED: {type(error).__name__}: {str(error)[:300]}"]
    lines += [f"  {number:2d}  {history.events[number]}" for number in kept]
    listed = ",".join(map(str, kept)) or "none"
    return history.plot, "\n".join([*lines, f"  again: python -m tests.simulation --seed {seed} --events {listed}"])


def error_of(history: History, folder: Path) -> BaseException | None:
    try:
        history.run(folder / "history")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a history finds
        return error
    return None


def _is_like(found: BaseException | None, error: BaseException) -> bool:
    """True for an error of the same kind whose message begins in the same way."""
    return type(found) is type(error) and str(found)[:20] == str(error)[:20]
