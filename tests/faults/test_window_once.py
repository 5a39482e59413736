"""A killed window join continues exactly: the same results and the same archive, each row once."""

import psutil
import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")

from tests.faults.window_scenario import WindowScenario

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_window_join_gives_the_same_results_once_wherever_it_is_killed(world, tmp_path):
    scenario = WindowScenario(tmp_path, seed=8)
    scenario.streams.grow()
    scenario.streams.grow()
    killed = scenario.spec("killed")
    code = world.run(killed, worker_fault="before a window's state@1")
    assert code == 1, (
        "one task that fails ends a query on a local Spark: rows were archived, their state was not written"
    )
    assert scenario.is_at_work("killed", 0)
    assert world.run(killed, worker_fault="after a window batch@1") == 1, world.tail()
    scenario.streams.grow()
    scenario.streams.end()
    driver = world.start_driver(killed)
    while not scenario.is_at_work("killed", 2):
        assert not driver.ended(0.02), world.tail()
    psutil.Process(driver.pid).kill()
    world.kill_jvm()
    driver.wait()
    world.end()
    assert world.run(killed) == 0, world.tail()
    assert world.run(scenario.spec("whole", files=9)) == 0, world.tail()
    kept = scenario.results("killed")
    assert kept == scenario.results("whole")
    assert kept < scenario.exact()
    assert scenario.missing("killed") == scenario.missing("whole") == scenario.exact() - kept
