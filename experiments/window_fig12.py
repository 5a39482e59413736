"""WINDOW Fig. 12: weather reports of two Septembers, joined by grid cell in a window of 5000, fixed and variable.

The paper's files are not available (`experiments.cloud_file` reads them), so `CloudReports` generates reports of their
documented shape (about 650 cells). The paper joins a million reports of each year. Here it is the first 30,000: the
numbers are as stable, and the optimum can be computed, which the paper's solver could not. PROBV is PROB with variable
allocation.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from experiments.window_runs import Keys, Rows, check_bounds, kept, memory_sweep, plot_lines, policies, window_of
from semistream.datasets import CloudReports

PARAMS: dict[str, Any] = {"window": 5000, "windows": 6, "years": (1985, 1986)}


def reports(rows: int) -> Keys:
    """Return the cells of the first ``rows`` reports of both years."""
    hours = range(1 + rows // 2000)  # each hour has more than 2000 reports
    left, right = (
        np.concatenate([CloudReports(year).hour(hour)["cell"].to_numpy() for hour in islice(hours, 240)])
        for year in PARAMS["years"]
    )
    return left[:rows].astype(np.int64), right[:rows].astype(np.int64)


def run(scale: float = 1.0) -> Rows:
    """Count the results in each memory."""
    window = window_of(PARAMS["window"], scale)
    keys = reports(PARAMS["windows"] * window)
    result = memory_sweep([keys], window)
    for row in result:
        for name, policy in policies(keys, ("PROB", "RANDOM")):
            row[f"{name}V"] = kept(keys, window, row["memory"], policy, "variable")
    return result


def check(result: Rows) -> None:
    """Assert the findings of the paper (5.2.5)."""
    check_bounds([{k: v for k, v in row.items() if not k.endswith("V")} for row in result])
    for row in result:
        assert row["PROB"] > row["RANDOM"], row
        # "The performance of the variable and fixed memory allocation versions PROB and PROBV were almost identical."
        assert abs(row["PROBV"] / row["PROB"] - 1) < 0.05, row
        assert abs(row["EXPECTED"] / row["PROB"] - 1) < 0.03, row
        if row["memory / w"] == 1.0:
            # "Generating over 90% of the output tuples produced by EXACT with only 50% of the memory."
            assert row["PROB"] > 0.9 * row["EXACT"], row


def plot(result: Rows, path: Path) -> None:
    """Plot the figure, with the optimum."""
    names = ("EXACT", "OPT", "PROB", "PROBV", "EXPECTED", "LIFE", "RANDOM", "RANDOMV")
    title = "WINDOW Fig. 12: weather reports by grid cell"
    plot_lines(result, path, by="window", x="memory", names=names, of=None, title=title)
