"""A pipeline on Spark that sheds rows and repairs them, killed at some points. All points: tests/simulation."""

import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from tests.faults.kills import KILLED, REPAIRING, SHEDDING, vacuum
from tests.faults.overload_scenario import OverloadScenario

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_rows_are_shed_and_repaired_once_wherever_the_driver_is_killed(world, tmp_path):
    scenario = OverloadScenario(tmp_path / "orders")
    for number, point in enumerate(SHEDDING[1::2]):
        scenario.grow()
        assert world.run(scenario.spec(), fault=point) == KILLED, f"{point}\n{world.tail()}"
        scenario.look()
        if number % 2:
            vacuum(scenario)
    for number, point in enumerate(REPAIRING[1::4]):
        scenario.grow()
        assert world.run(scenario.spec()) == 0, f"before {point}\n{world.tail()}"
        assert scenario.archived()
        assert world.run(scenario.spec(), fault=point, reconcile=True) == KILLED, f"{point}\n{world.tail()}"
        scenario.look()
        if number % 2:
            vacuum(scenario)
    assert world.run(scenario.spec()) == 0, world.tail()
    assert world.run(scenario.spec(), reconcile=True) == 0, world.tail()
    scenario.check()
    vacuum(scenario)
    scenario.check()


def test_a_parquet_archive_is_repaired_once_though_workers_and_drivers_are_killed(world, tmp_path):
    scenario = OverloadScenario(tmp_path / "orders", format="parquet")
    for point in ("before leaving the archive", "after leaving the archive"):
        scenario.grow()
        assert world.run(scenario.spec()) == 0, world.tail()
        assert world.run(scenario.spec(), fault=point, reconcile=True) == KILLED, f"{point}\n{world.tail()}"
        scenario.look()
    scenario.grow()
    assert world.run(scenario.spec(), worker_fault="before report") == 1
    scenario.look()
    assert world.run(scenario.spec()) == 0, world.tail()
    assert world.run(scenario.spec(), worker_fault="in a file", reconcile=True) == 1
    scenario.look()
    assert world.run(scenario.spec(), reconcile=True) == 0, world.tail()
    scenario.check()
