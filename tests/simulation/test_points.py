"""Pipelines killed at every point of the ledger's protocol, one after the other: each row comes once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kills import ORDERS, REPAIRING, SHEDDING, SNAPSHOTS
from tests.faults.orders_scenario import OrdersScenario
from tests.faults.overload_scenario import OverloadScenario
from tests.faults.snapshot_scenario import SnapshotScenario
from tests.simulation.local_driver import drive
from tests.simulation.local_workers import forget_workers
from tests.simulation.runner import LocalRunner
from tests.simulation.world import Kill, World

Strike = Callable[..., bool]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world in which steps are counted."""
    world = World(tmp_path, seed=1)
    with LocalRunner(world).set_up():
        yield world


def struck(world: World, spec: dict[str, Any], point: str, *, only_repair: bool = False) -> bool:
    """Run a pipeline whose driver, or a worker, is killed at a point; return True if the driver was."""
    name, _, times = point.partition("@")
    kill = Kill("driver", int(times or 0), name)
    killed = not world.run("driver", kill, lambda: drive(world, spec, kill=kill, only_repair=only_repair))
    forget_workers()
    return killed


def test_orders_come_once_wherever_the_driver_is_killed(world: World) -> None:
    scenario = OrdersScenario(world.folder, seed=1)
    for point in ORDERS:
        scenario.grow()
        assert struck(world, scenario.spec(), point), point
        scenario.look()
    for spec in (scenario.spec(), scenario.spec(retry_for="1ms")):
        drive(world, spec)
    scenario.check()


def test_changes_are_told_once_wherever_the_driver_is_killed(world: World) -> None:
    scenario = SnapshotScenario(world.folder, seed=3)
    for point in SNAPSHOTS:
        scenario.grow()
        assert struck(world, scenario.spec(), point), point
        scenario.look()
    drive(world, scenario.spec())
    scenario.check()


def test_rows_are_shed_and_repaired_once_wherever_the_driver_is_killed(world: World) -> None:
    scenario = OverloadScenario(world.folder)
    for point in SHEDDING:
        scenario.grow()
        assert struck(world, scenario.spec(), point), point
        scenario.look()
    for point in REPAIRING:
        scenario.grow()
        drive(world, scenario.spec())
        assert scenario.archived()
        assert struck(world, scenario.spec(), point, only_repair=True), point
        scenario.look()
    drive(world, scenario.spec())
    drive(world, scenario.spec(), only_repair=True)
    scenario.check()
