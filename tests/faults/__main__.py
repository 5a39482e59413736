"""Many random kills with a seed: ``python -m tests.faults --kills 200 --seed 1``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tests.faults.kills import (
    ORDERS,
    REPAIRING,
    SHEDDING,
    SNAPSHOTS,
    Kill,
    Scenario,
    finish,
    random_kill,
    strike,
)
from tests.faults.orders_scenario import OrdersScenario
from tests.faults.overload_scenario import OverloadScenario
from tests.faults.snapshot_scenario import SnapshotScenario
from tests.faults.spark_world import SparkWorld
from tests.faults.window_scenario import WindowScenario

_KILLS_EACH = 20  # of one pipeline, before its tables are compared with the oracle
_WINDOW_KILLS = 4
_JVM = 0.03  # the part of kills that take the driver's JVM
_STRIKES = 2  # for each kill that is wanted, at most: some find that what they wait for has ended


class Campaign:
    """A number of kills of pipelines, one after the other, within a time limit; counts them and their findings."""

    def __init__(self, kills: int, minutes: float) -> None:
        self.kills = kills
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self._strikes = 0
        self._begin_s, self._limit_s = time.perf_counter(), 60 * minutes

    @property
    def goes_on(self) -> bool:
        """True if there should be another kill."""
        in_time = self.seconds < self._limit_s and self._strikes < _STRIKES * self.kills
        return self.done.total() < self.kills and in_time

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self._begin_s

    def struck(self, kill: Kill, *, hit: bool) -> None:
        """Count a strike, and the kill if it was one."""
        self._strikes += 1
        if hit:
            self.done[kill.target] += 1

    @property
    def progress(self) -> str:
        """Return the progress, and the time left at this pace."""
        done = self.done.total()
        left_s = min(self.seconds / max(done, 1) * (self.kills - done), self._limit_s - self.seconds)
        return f"{done:4d} of {self.kills}, about {max(left_s, 0) / 60:.0f} min left"


def main(kills: int, seed: int, minutes: float) -> int:
    """Run the kills and report; the exit code is 0 if all were done and nothing was lost, doubled or changed."""
    folder = Path(tempfile.mkdtemp(prefix="semistream-faults-"))
    campaign, episode = Campaign(kills, minutes), 0
    with SparkWorld(folder / "spark.log") as world:
        while campaign.goes_on:
            name = f"{seed}-{episode}"
            try:
                _episode(world, folder / name, [seed, episode], campaign)
            except AssertionError as error:
                campaign.failures.append(f"pipeline {name}: {error}")
                _say(f"FAILED {campaign.failures[-1]}")
            else:
                _say(f"pipeline {name}: all tables are as they must be")
                shutil.rmtree(folder / name)
            episode += 1
    done = campaign.done
    _say(f"{done.total()} kills of {episode} pipelines in {campaign.seconds:.0f} s: {dict(done)}")
    _say(f"{len(campaign.failures)} pipelines with rows lost, doubled or changed")
    for failure in campaign.failures:
        _say(failure)
    if campaign.failures:
        _say(f"what they left is in {folder}")
    else:
        shutil.rmtree(folder)
    if done.total() < kills:
        _say(f"{kills - done.total()} kills were not done: the time (--minutes) or the tries were over")
    return int(bool(campaign.failures) or done.total() < kills)


def _episode(world: SparkWorld, folder: Path, seed: list[int], campaign: Campaign) -> None:
    generator = np.random.default_rng(seed)
    kinds = ["orders", "deferred orders", "snapshots", "overload", "windows"]
    kind = str(generator.choice(kinds, p=[0.4, 0.15, 0.15, 0.2, 0.1]))
    first = campaign.done.total()
    if kind == "windows":
        _windows(world, folder, generator, campaign)
        return
    points, scenario = _scenario(kind, folder, int(generator.integers(1 << 30)))
    while campaign.goes_on and campaign.done.total() - first < _KILLS_EACH:
        repairs = kind == "overload" and bool(generator.random() < 0.5)
        if repairs:
            assert world.run(scenario.spec()) == 0, world.tail()
        kill = random_kill(generator, REPAIRING if repairs else points, jvm=_JVM)
        start = time.perf_counter()
        code, struck = strike(world, scenario, kill, reconcile=repairs)
        struck &= kill.target != "worker" or code != 0  # else only workers that had nothing to do were killed
        campaign.struck(kill, hit=struck)
        what = f"exit {code}" if struck else "not reached"
        doing = "repair" if repairs else kind
        _say(f"{campaign.progress}  {doing}: {kill}: {what}, {time.perf_counter() - start:.1f} s")
    finish(world, scenario)


def _windows(world: SparkWorld, folder: Path, generator: np.random.Generator, campaign: Campaign) -> None:
    """Kill a window join a few times; then compare it with one that was never killed, and with the exact join."""
    folder.mkdir()
    scenario = WindowScenario(folder, int(generator.integers(1 << 30)))
    scenario.streams.grow()
    for _ in range(_WINDOW_KILLS):
        scenario.streams.grow()
        point = str(generator.choice(["before a window's state", "after a window batch"]))
        kill = Kill("worker point", f"{point}@{generator.integers(3)}")
        start = time.perf_counter()
        code = world.run(scenario.spec("killed"), worker_fault=kill.point)
        campaign.struck(kill, hit=code != 0)
        _say(f"{campaign.progress}  windows: {kill}: exit {code}, {time.perf_counter() - start:.1f} s")
    scenario.streams.end()
    for spec in (scenario.spec("killed"), scenario.spec("whole", files=99)):
        assert world.run(spec) == 0, world.tail()
    kept, exact = scenario.results("killed"), scenario.exact()
    assert kept == scenario.results("whole"), "a killed window join has other results than one that was not"
    assert scenario.missing("killed") == scenario.missing("whole") == exact - kept, "the archive lacks results"


def _scenario(kind: str, folder: Path, seed: int) -> tuple[list[str], Scenario]:
    if kind == "snapshots":
        return SNAPSHOTS, SnapshotScenario(folder, seed)
    if kind == "overload":
        return SHEDDING, OverloadScenario(folder)
    return ORDERS, OrdersScenario(folder, seed, "10m" if kind == "deferred orders" else None)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 (this is a command)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=90.0, help="after which no kill is begun")
    given = parser.parse_args()
    sys.exit(main(given.kills, given.seed, given.minutes))
