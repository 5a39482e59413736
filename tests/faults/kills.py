"""Ways to kill parts of a running pipeline; run, kill, check and finish a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import psutil
import yaml

from semistream.pipelines.batch.housekeeping import vacuum_pipeline
from tests.faults.overload_scenario import OverloadScenario
from tests.faults.spark_world import Driver, SparkWorld

KILLED = -9
_LOOK_EVERY_S = 0.05
_TRIES = 3
LEDGER = [f"{when} {stage}" for stage in ("planned", "prepared", "done") for when in ("before", "after")]
ORDERS = [
    *LEDGER,
    *(f"{when} {stage}" for stage in ("staged-0", "staged-1") for when in ("before", "after")),
    *(f"{when} keys@{n}" for n in (0, 1, 2) for when in ("before", "after")),  # numbers, orders, orders again
    *(f"{when} {stage}" for stage in ("update plan", "update") for when in ("before", "after")),
    *(f"before commit of {outcome}" for outcome in ("joined", "unmatched", "invalid", "duplicate")),
    *(f"{when} delta commit@{n}" for n in (0, 1) for when in ("before", "after")),
    *(f"{when} parquet rename" for when in ("before", "after")),
]
"""Every point that a batch of orders passes, in the driver."""
SNAPSHOTS = [
    *LEDGER,
    "before commit of joined",
    "before delta commit",
    "after delta commit",
    "before snapshot",
    "after snapshot",
    "in a file",
]
"""Every point that a snapshot passes, in the driver."""
SHEDDING = [
    "before shed",
    "after shed",
    "before commit of shed",
    "before archived",
    "after archived",
]
"""Points that a batch passes of which rows are shed, in the driver."""
REPAIRING = [
    "after planned",
    "before prepared",
    "after prepared",
    "after delta commit",
    "before leaving the archive",
    "after leaving the archive",
    "before archived",
    "after archived",
    "before done",
    "after done",
]
"""Points that a repair passes, in the driver."""
WORKER = ["in a file", "in a file@1", "before report", "before report@1"]
"""Points that a Python worker passes."""

Target = Literal["point", "worker point", "driver", "worker", "executor", "JVM"]


class Scenario(Protocol):
    """A pipeline with an oracle."""

    folder: Path

    def spec(self, retry_for: str = ...) -> dict[str, Any]: ...
    def grow(self) -> None: ...
    def look(self) -> None: ...
    def check(self) -> None: ...


@dataclass(frozen=True)
class Kill:
    """A kill of a driver or a worker at a named ``point``, or of any target after ``delay_s`` of work.

    With ``vacuum`` the tables are vacuumed before the next run.
    """

    target: Target
    point: str = ""
    delay_s: float = 0.0
    vacuum: bool = False

    def __str__(self) -> str:
        return f"{self.target} {self.point or f'after {self.delay_s:.2f} s'}"


def strike(world: SparkWorld, scenario: Scenario, kill: Kill, *, reconcile: bool = False) -> tuple[int, bool]:
    """Run the pipeline with more input and kill something; return the driver's exit code, and True if a kill was done.

    With ``reconcile``, it repairs its shed rows instead. Check the tables right after the kill.
    """
    if not reconcile:
        scenario.grow()
    if kill.target == "point":
        code = _run(world, scenario.spec(), kill.point, reconcile=reconcile)
        struck = code == KILLED
    elif kill.target == "worker point":
        code = world.run(scenario.spec(), worker_fault=kill.point, reconcile=reconcile)
        struck = code != 0
    else:
        driver = world.start_driver(scenario.spec(), reconcile=reconcile)
        struck = not driver.ended(kill.delay_s) and _kill(world, driver, kill)
        code = driver.wait()
        if kill.target == "JVM":
            world.end()
    scenario.look()
    if kill.vacuum:
        vacuum(scenario)
    return code, struck


def _run(world: SparkWorld, spec: dict[str, Any], fault: str = "", *, reconcile: bool = False) -> int:
    """Run a driver; start it again if Spark fails, as users would.

    Spark waits 10 s for a Python process of a data source to answer, which on a busy machine can be too short.
    """
    for _ in range(_TRIES):
        code = world.run(spec, fault=fault, reconcile=reconcile)
        if code in (0, KILLED):
            break
    return code


def vacuum(scenario: Scenario) -> list[Path]:
    """Remove the files of dead workers and drivers."""
    file = scenario.folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(scenario.spec()))
    return vacuum_pipeline(file)


def _kill(world: SparkWorld, driver: Driver, kill: Kill) -> bool:
    """Kill the target; return False if the driver ended before there was one."""
    if kill.target == "JVM":
        psutil.Process(driver.pid).kill()
        world.kill_jvm()
        return True
    victims = _victims(world, driver, kill.target)
    while not victims and not driver.ended(_LOOK_EVERY_S):
        victims = _victims(world, driver, kill.target)
    killed = 0
    for victim in victims if kill.target == "worker" else victims[:1]:  # of workers, we do not know which are busy
        with suppress(psutil.NoSuchProcess):
            victim.kill()
            killed += 1
    return bool(killed)


def _victims(world: SparkWorld, driver: Driver, target: Target) -> list[psutil.Process]:
    if target == "worker":
        return world.workers()
    return world.executors() if target == "executor" else [psutil.Process(driver.pid)]


def finish(world: SparkWorld, scenario: Scenario) -> None:
    """Run the pipeline to its end, including all waiting rows, and check all tables."""
    for spec in (scenario.spec(), scenario.spec(retry_for="1ms")):
        assert _run(world, spec) == 0, world.tail()
    if isinstance(scenario, OverloadScenario):
        assert _run(world, scenario.spec(), reconcile=True) == 0, world.tail()
    scenario.check()
    vacuum(scenario)
    scenario.check()


def random_kill(generator: np.random.Generator, points: Sequence[str], *, jvm: float = 0.0) -> Kill:
    """Draw any kind of kill; with the probability ``jvm`` one of the driver's JVM, which takes longest to restart."""
    vacuum = bool(generator.random() < 0.3)
    if generator.random() < jvm:
        return Kill("JVM", delay_s=float(generator.uniform(0.2, 3.0)), vacuum=vacuum)
    kind = generator.random()
    if kind < 0.55:
        return Kill("point", str(generator.choice(points)), vacuum=vacuum)
    if kind < 0.75:
        return Kill("driver", delay_s=float(generator.uniform(0.2, 1.5)), vacuum=vacuum)
    if kind < 0.9:
        return Kill("worker", delay_s=float(generator.uniform(0.3, 1.5)), vacuum=vacuum)
    return Kill("worker point", str(generator.choice(WORKER)), vacuum=vacuum)
