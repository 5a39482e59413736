"""Simulated histories: ``python -m tests.simulation --histories 300 --seed 1``; ``--events 0,3`` replays a failure."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.faults.spark_world import SparkWorld
from tests.simulation.history import History, tried
from tests.simulation.spark_runner import SparkRunner


def main(histories: int, seed: int, minutes: float) -> int:
    """Run histories from a seed on, one process for each core; return 1 if one has failed, or not all were run."""
    begin, plots, failed = time.perf_counter(), Counter[str](), 0
    until = time.time() + 60 * minutes
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for found in pool.map(tried, range(seed, seed + histories), [until] * histories):
            if found is None:
                continue
            plot, told = found
            plots[plot] += 1
            if told:
                failed += 1
                _say(told)
    seconds, done = time.perf_counter() - begin, plots.total()
    _say(f"{done} histories in {seconds:.0f} s ({60 * done / seconds:.0f} a minute): {dict(plots)}; {failed} failed")
    return int(bool(failed) or done < histories)


def on_spark(histories: int, seed: int, minutes: float) -> int:
    """Run histories on a real Spark, one after the other."""
    begin, failed = time.perf_counter(), 0
    with tempfile.TemporaryDirectory(prefix="semistream-simulation-") as name:
        folder = Path(name)
        with SparkWorld(folder / "spark.log") as spark:
            for each in range(seed, seed + histories):
                if time.perf_counter() - begin > 60 * minutes:
                    break
                try:
                    History.draw(each).run(folder / str(each), lambda _: SparkRunner(spark))
                except AssertionError as error:
                    failed += 1
                    _say(f"seed {each} FAILED on Spark: {error}")
    _say(f"{histories} histories on Spark in {time.perf_counter() - begin:.0f} s; {failed} failed")
    return int(bool(failed))


def replay(seed: int, events: list[int]) -> int:
    """Run the given events of a history, and show its error; return 1 if there is one."""
    try:
        with tempfile.TemporaryDirectory(prefix="semistream-simulation-") as folder:
            steps = History.draw(seed).only(events).run(Path(folder) / "history")
    except BaseException:
        traceback.print_exc()
        return 1
    _say(f"no failure in {len(steps)} steps")
    return 0


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 (this is a command)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="of the first history; the next ones have the next seeds")
    parser.add_argument("--events", help="only these events of the history with this seed, by their positions")
    parser.add_argument("--minutes", type=float, default=30.0, help="after which no history is begun")
    parser.add_argument("--spark", action="store_true", help="run them on Spark: about a minute each")
    given = parser.parse_args()
    if given.events is not None:
        sys.exit(replay(given.seed, [int(each) for each in given.events.split(",") if each.isdigit()]))
    if given.spark:
        sys.exit(on_spark(given.histories, given.seed, given.minutes))
    sys.exit(main(given.histories, given.seed, given.minutes))
