"""Histories: events drawn from a seed, run one after the other, and checked against an oracle."""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import pytest
import yaml
from deltalake.exceptions import DeltaError

from semistream.errors import SemistreamError
from semistream.kernels.array_types import Floats
from semistream.pipelines.batch.housekeeping import vacuum_pipeline
from tests.faults.overload_scenario import OverloadScenario
from tests.faults.snapshot_scenario import SnapshotScenario
from tests.simulation.local_driver import drive
from tests.simulation.local_workers import forget_workers
from tests.simulation.scenarios import POISONS, AuditScenario, SimulatedOrders, vacuum_relations
from tests.simulation.world import Kill, World
from tests.spark.pipelines.overloads import ROW_S, believe_slow

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


@dataclass(frozen=True)
class Fault:
    """What befalls a run: a kill, a full disk, or nothing; and how the run is set up."""

    slots: int = 2
    late: bool = False
    kill: Kill | None = None
    disk_bytes: int | None = None

    @classmethod
    def draw(cls, draw: np.random.Generator, shares: Floats) -> Fault:
        """Draw a fault; ``shares`` are the probabilities of `_FAULTS`."""
        slots, late, kind = int(draw.integers(1, 4)), bool(draw.random() < 0.5), str(draw.choice(_FAULTS, p=shares))
        if kind == "driver":  # often early: during recovery
            return cls(slots, late, Kill("driver", int(_MOST_STEPS ** draw.random())))
        if kind == "worker":
            return cls(slots, late, Kill("worker", int(draw.integers(30))))
        if kind == "driver of tasks":
            return cls(slots, late, Kill("driver of tasks", int(draw.integers(3))))
        if kind == "disk":
            return cls(slots, late, disk_bytes=int(_DISK_BYTES ** draw.random()))
        return cls(slots, late)

    def __str__(self) -> str:
        what = "no fault"
        if self.kill is not None:
            what = f"{self.kill.role} killed at step {self.kill.step}"
        elif self.disk_bytes is not None:
            what = f"files end at {self.disk_bytes} bytes"
        return f"{self.slots} slots, {'late' if self.late else 'early'} publication, {what}"


@dataclass(frozen=True)
class Event:
    """An event of a ``kind``, with a random ``number`` for its details; a run also has a fault."""

    kind: str
    number: int
    fault: Fault = Fault()

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
            tuple(Event(kind, int(draw.integers(1 << 31)), Fault.draw(draw, faults)) for kind in chosen),
        )

    def only(self, kept: Sequence[int]) -> History:
        """Return a history of the events at the positions ``kept``."""
        return History(self.seed, self.plot, tuple(self.events[i] for i in kept))

    def run(self, folder: Path) -> list[str]:
        """Run all events below ``folder``, and check the end; return the steps. Any error is one of semistream's."""
        world = World(folder, self.seed)
        with world.simulated(), _slow_rows():
            try:
                played = _Played(world, self.plot, self.seed)
                for event in self.events:
                    played.play(event)
                played.end()
            finally:
                forget_workers()
                shutil.rmtree(folder, ignore_errors=True)
        return world.steps


class _Played:
    """A history as it goes on."""

    def __init__(self, world: World, plot: Plot, seed: int) -> None:
        self._world = world
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
            self._run(self._audit.spec(), event.fault)
        else:
            self._run(scenario.spec(), event.fault, only_repair=event.kind == "reconcile")
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
            self._must_run(spec)
        if isinstance(scenario, OverloadScenario):
            self._must_run(scenario.spec(), only_repair=True)
        scenario.check()
        if self._audit is not None:
            self._must_run(self._audit.spec())
            self._audit.check()
        self._vacuum_tables()
        scenario.check()

    def _must_run(self, spec: dict[str, Any], *, only_repair: bool = False) -> None:
        """Run a pipeline that must end by itself; without new input, it must then have nothing left to do."""
        drive(self._world, spec, only_repair=only_repair)
        before = len(self._world.steps)
        drive(self._world, spec, only_repair=only_repair)
        planned = self._world.steps[before:].count("before planned")
        assert planned <= 1, f"{planned} batches were planned though nothing was left"

    def _run(self, spec: dict[str, Any], fault: Fault, *, only_repair: bool = False) -> None:
        def work() -> None:
            drive(self._world, spec, slots=fault.slots, late=fault.late, kill=fault.kill, only_repair=only_repair)

        try:
            with _full_disk(fault.disk_bytes):
                alive = self._world.run("driver", fault.kill, work)
        except (SemistreamError, OSError, DeltaError) as error:
            if fault.disk_bytes is None and not (only_repair and "Run the pipeline first" in str(error)):
                raise
            alive = False
        if not alive:
            forget_workers()

    def _storm(self, orders: SimulatedOrders) -> None:
        """Bring an update whenever a driver reads one, for a while."""
        left = [None] * _STORM

        def more() -> None:
            if left:
                left.pop()
                with _full_disk(resource.RLIM_INFINITY):  # others have a disk of their own
                    orders.put_update()

        orders.put_update()
        self._world.while_reading_updates = more

    def _vacuum_tables(self) -> None:
        """Remove the files of dead processes, as `semistream vacuum` does."""
        file = self._world.folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(self._scenario.spec()))
        vacuum_pipeline(file)


@contextmanager
def _slow_rows() -> Iterator[None]:
    """Let overloaded pipelines believe that a row takes long."""
    with pytest.MonkeyPatch.context() as patch:
        believe_slow(ROW_S, patch.setattr)
        yield


@contextmanager
def _full_disk(most_bytes: int | None) -> Iterator[None]:
    """Let no file grow beyond a size within the block: a write then fails, whoever does it."""
    if most_bytes is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


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
