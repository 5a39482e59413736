"""Change detection on Spark, killed at some points: each change is reported once. All points: tests/simulation."""

import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from tests.faults.kills import KILLED, SNAPSHOTS, Kill, finish, strike
from tests.faults.snapshot_scenario import SnapshotScenario

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_changes_are_told_once_wherever_the_driver_is_killed(world, tmp_path):
    scenario = SnapshotScenario(tmp_path / "items", seed=3)
    for number, point in enumerate(SNAPSHOTS[1::5]):
        assert strike(world, scenario, Kill("point", point, vacuum=number % 2 == 0)) == (KILLED, True), (
            f"{point}\n{world.tail()}"
        )
    finish(world, scenario)
