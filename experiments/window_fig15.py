"""WINDOW Figs. 15, 16 and 20: division of the memory between the streams over time, with variable allocation.

Shows the share of the left stream R, for PROB, EXPECTED and the optimum, in a memory of one window.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments.window_fig12 import reports
from experiments.window_runs import (
    ROWS_OF_WINDOW,
    WARM_UP,
    Keys,
    Rows,
    operator,
    plot_lines,
    policies,
    push,
    window_of,
)
from semistream.datasets import ZipfPair
from semistream.windows import Policy, optimal_offline

PARAMS: dict[str, Any] = {
    "window": 400,
    "cloud_window": 5000,
    "cloud_windows": 6,
    "domain": 50,
    "skews": {"Zipf(0.25), Zipf(0.25)": (0.25, 0.25), "Zipf(1), uniform": (1.0, 0.0)},
    "points_of_window": 4,
}
CLOUDS = "weather reports"


def run(scale: float = 1.0) -> Rows:
    """Return the shares at several instants after the warm-up."""
    window = window_of(PARAMS["window"], scale)
    result = []
    for streams, skews in PARAMS["skews"].items():
        keys = ZipfPair(skews, PARAMS["domain"], seed=1).keys(window * ROWS_OF_WINDOW)
        result += _shares(streams, keys, window, optimal=True)
    clouds = window_of(PARAMS["cloud_window"], scale)
    return result + _shares(CLOUDS, reports(PARAMS["cloud_windows"] * clouds), clouds, optimal=False)


def _shares(streams: str, keys: Keys, window: int, *, optimal: bool) -> Rows:
    step = window // PARAMS["points_of_window"]
    instants = list(range(WARM_UP * window, keys[0].size, step))
    found = {name: list(_by_policy(keys, window, policy, instants)) for name, policy in policies(keys, _NAMES)}
    if optimal:
        found["OPT"] = list(_by_optimum(keys, window, instants))
    rows = []
    for i, instant in enumerate(instants):
        rows.append({"streams": streams, "time / w": instant / window, **{name: found[name][i] for name in found}})
    return rows


_NAMES = ("PROB", "EXPECTED")


def _by_policy(keys: Keys, window: int, policy: Policy, instants: list[int]) -> Iterator[float]:
    join = operator(window, window, policy, "variable")
    for begin, end in pairwise([0, *instants]):
        for _ in push(join, keys, begin, end):
            pass
        stats = join.stats
        yield stats.left.in_memory / max(stats.left.in_memory + stats.right.in_memory, 1)


def _by_optimum(keys: Keys, window: int, instants: list[int]) -> Iterator[float]:
    best = optimal_offline(*keys, window=window, memory=window, allocation="variable", count_from=WARM_UP * window)
    for instant in instants:
        left, right = (
            int(np.count_nonzero(until[:instant] >= instant)) for until in (best.left_until, best.right_until)
        )
        yield left / max(left + right, 1)


def check(result: Rows) -> None:
    """Assert the findings of the paper (5.2.3, 5.2.5)."""
    for name in _NAMES:
        means = {
            streams: float(np.mean([row[name] for row in result if row["streams"] == streams]))
            for streams in (*PARAMS["skews"], CLOUDS)
        }
        # "When the two input streams have the same distribution, both the relations get about half the memory." With
        # little skew, chance decides which stream has more keys in the better half.
        assert 0.3 < means["Zipf(0.25), Zipf(0.25)"] < 0.7, (name, means)
        assert 0.4 < means[CLOUDS] < 0.6, (name, means)
        # "The relation with the higher skew is allotted more memory (up to a share of 85%)."
        assert 0.6 < means["Zipf(1), uniform"] < 0.9, (name, means)


def plot(result: Rows, path: Path) -> None:
    """Plot the three figures. The optimum keeps only tuples with results, so its share is of fewer tuples."""
    shown = [row if "OPT" in row else {**row, "OPT": float("nan")} for row in result]
    title = "WINDOW Figs. 15, 16 and 20: share of the memory held by R"
    plot_lines(shown, path, by="streams", x="time / w", names=("PROB", "EXPECTED", "OPT"), of=None, title=title)
