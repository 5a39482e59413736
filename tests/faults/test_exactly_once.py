"""Pipelines on Spark, killed at some points: all tables equal the oracle's. All points: tests/simulation."""

from pathlib import Path

import pytest

from semistream.pipelines.ledger.ledger import Ledger

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from tests.faults.kills import KILLED, ORDERS, Kill, finish, strike
from tests.faults.orders_scenario import OrdersScenario
from tests.faults.spark_world import SparkWorld

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_orders_come_once_wherever_the_driver_is_killed(world, tmp_path):
    scenario = OrdersScenario(tmp_path / "orders", seed=1)
    for number, point in enumerate(ORDERS[::5]):
        assert strike(world, scenario, Kill("point", point, vacuum=number % 2 == 0)) == (KILLED, True), (
            f"{point}\n{world.tail()}"
        )
    finish(world, scenario)


def test_orders_come_once_though_spark_went_on_before_a_batch_was_in_its_tables(world, tmp_path):
    scenario = OrdersScenario(tmp_path / "orders", seed=3)
    assert strike(world, scenario, Kill("point", "before commit of joined@0~3")) == (KILLED, True), world.tail()
    checkpoint = Path(scenario.spec()["checkpoint"])
    ledger = Ledger.read(checkpoint, scenario.spec()["name"])
    assert ledger.open_plan is not None
    assert ledger.prepared(ledger.open_plan.batch) is not None
    assert (checkpoint / "spark" / "commits" / str(ledger.open_plan.source_batch)).exists()
    finish(world, scenario)


def test_orders_come_once_though_workers_are_killed(world, tmp_path):
    scenario = OrdersScenario(tmp_path / "orders", seed=2, latency="10m")
    for point in ("in a file", "before report", "before report@1"):
        code, struck = strike(world, scenario, Kill("worker point", point))
        assert struck, point
        assert code == 1, "one task that fails ends a query on a local Spark, and the pipeline says so"
    finish(world, scenario)


def test_orders_come_once_though_executors_workers_and_the_jvm_are_killed(world, tmp_path):
    scenario = OrdersScenario(tmp_path / "orders", seed=4)
    with SparkWorld(tmp_path / "cluster.log", "local-cluster[2,1,1024]") as cluster:
        for target in ("executor", "worker"):
            code, struck = strike(cluster, scenario, Kill(target, delay_s=0.5))
            assert struck, target
            assert code == 0, f"another executor or worker runs the task again\n{cluster.tail()}"
        assert strike(cluster, scenario, Kill("JVM", delay_s=0.5))[1]
    finish(world, scenario)
