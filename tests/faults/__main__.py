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

from tests.faults.kills import ORDERS, SNAPSHOTS, Scenario, finish, random_kill, strike
from tests.faults.orders_scenario import OrdersScenario
from tests.faults.snapshot_scenario import SnapshotScenario
from tests.faults.spark_world import SparkWorld

_KILLS_EACH = 20  # of one pipeline, before its tables are compared with the oracle
_JVM = 0.03  # the part of kills that take the driver's JVM


def main(kills: int, seed: int) -> int:
    """Do it, and say how it went; the exit code is 0 if nothing was lost, doubled or changed."""
    folder = Path(tempfile.mkdtemp(prefix="semistream-faults-"))
    done: Counter[str] = Counter()
    failures: list[str] = []
    begin, episode = time.perf_counter(), 0
    with SparkWorld(folder / "spark.log") as world:
        while done.total() < kills:
            name = f"{seed}-{episode}"
            try:
                _episode(world, folder / name, [seed, episode], done, kills)
            except AssertionError as error:
                failures.append(f"pipeline {name}: {error}")
                _say(f"FAILED {failures[-1]}")
            else:
                _say(f"pipeline {name}: all tables are as they must be")
                shutil.rmtree(folder / name)
            episode += 1
    _say(f"{done.total()} kills of {episode} pipelines in {time.perf_counter() - begin:.0f} s: {dict(done)}")
    _say(f"{len(failures)} pipelines with rows lost, doubled or changed")
    for failure in failures:
        _say(failure)
    if failures:
        _say(f"what they left is in {folder}")
    else:
        shutil.rmtree(folder)
    return int(bool(failures))


def _episode(world: SparkWorld, folder: Path, seed: list[int], done: Counter[str], most: int) -> None:
    generator = np.random.default_rng(seed)
    kind = generator.choice(["orders", "deferred orders", "snapshots"], p=[0.6, 0.2, 0.2])
    points, scenario = _scenario(kind, folder, int(generator.integers(1 << 30)))
    struck_here = 0
    while struck_here < _KILLS_EACH and done.total() < most:
        kill = random_kill(generator, points, jvm=_JVM)
        start = time.perf_counter()
        code, struck = strike(world, scenario, kill)
        struck &= kill.target != "worker" or code != 0  # else only workers that had nothing to do were killed
        if struck:
            done[kill.target] += 1
            struck_here += 1
        what = f"exit {code}" if struck else "not reached"
        _say(f"{done.total():4d}  {kind}: {kill}: {what}, {time.perf_counter() - start:.1f} s")
    finish(world, scenario)


def _scenario(kind: str, folder: Path, seed: int) -> tuple[list[str], Scenario]:
    if kind == "snapshots":
        return SNAPSHOTS, SnapshotScenario(folder, seed)
    return ORDERS, OrdersScenario(folder, seed, "10m" if kind == "deferred orders" else None)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 (this is a command)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(main(given.kills, given.seed))
