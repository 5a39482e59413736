"""Check many power cuts of every scenario; `make crash` runs this."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.crash.cuts import check, find
from tests.crash.scenarios import SCENARIOS, run_states

_CHUNK = 400  # states of one recorded run
_SHOWN = 3  # failures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--states", type=int, default=2000, help="states of each scenario (default: 2000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), help="this one alone")
    parser.add_argument("--cut", help="check this cut alone, by the name that a failure has")
    given = parser.parse_args()
    if given.cut:
        scenario = SCENARIOS[given.cut.partition("@")[0]]()
        failure = check(scenario, find(scenario, given.cut, given.seed), given.seed)
        sys.stdout.write(f"{failure or f'{given.cut}: recovered'}\n")
        return failure is not None
    names = [given.scenario] if given.scenario else sorted(SCENARIOS)
    chunks = [(given.seed + i, min(_CHUNK, given.states - at)) for i, at in enumerate(range(0, given.states, _CHUNK))]
    runs = [(name, *chunk) for name in names for chunk in chunks]
    began = time.perf_counter()
    total, failed = dict.fromkeys(names, 0), 0
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        for (name, _, _), (states, found) in zip(runs, pool.map(run_states, *zip(*runs, strict=True)), strict=True):
            total[name] += states
            for text in found[: max(_SHOWN - failed, 0)]:
                sys.stdout.write(f"{text}\n")
            failed += len(found)
    minutes = (time.perf_counter() - began) / 60
    lines = [f"{name}: {states:,} states" for name, states in total.items()]
    states = sum(total.values())
    lines.append(
        f"{states:,} states in {minutes:.1f} minutes, {states / minutes:,.0f} a minute; {failed} not recovered"
    )
    if failed:
        lines.append("One of them again: make crash CUT=<name> SEED=<seed>")
    sys.stdout.write("\n".join(lines) + "\n")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
