"""Shared code of the figures of WINDOW 5.2: policies, the optimum, results after the warm-up, and plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.cli.plots import plain_axes
from semistream.windows import (
    Expected,
    GivenProbabilities,
    Life,
    Policy,
    Prob,
    Random,
    WindowJoin,
    count_window_pairs,
    optimal_offline,
)

Rows = list[dict[str, Any]]
Int64s = npt.NDArray[np.int64]
Keys = tuple[Int64s, Int64s]

MEMORIES = (0.1, 0.25, 0.5, 1.0, 1.5)  # shares of w: "we vary it as 0.1w, 0.25w, 0.5w, w and 1.5w"; 2 w is exact
ROWS_OF_WINDOW = 14  # 5600 tuples of each stream to a window of 400
WARM_UP = 2  # windows whose results are not counted
POLICIES = ("PROB", "EXPECTED", "LIFE", "RANDOM")
_LEAST_WINDOW = 40
_LEFT = pa.schema([("key", pa.int64()), ("left", pa.int64())])
_RIGHT = pa.schema([("key", pa.int64()), ("right", pa.int64())])


def window_of(window: int, scale: float) -> int:
    """Scale a window to a multiple of 40, so that a tenth of it is even: each stream gets half of the memory."""
    return max(round(window * scale / _LEAST_WINDOW), 1) * _LEAST_WINDOW


def policies(keys: Keys, names: Iterable[str] = POLICIES) -> Iterator[tuple[str, Policy]]:
    """Build policies that know the frequencies of the whole streams, as in the paper."""
    left, right = (pa.table({"key": side}) for side in keys)
    given = GivenProbabilities.of_streams(left, right, on="key")
    made: dict[str, Policy] = {
        "PROB": Prob(given), "EXPECTED": Expected(given), "LIFE": Life(given), "RANDOM": Random(1)
    }  # fmt: skip
    return ((name, made[name]) for name in names)


def operator(window: int, memory: int | None, policy: Policy, allocation: str = "fixed") -> WindowJoin:
    """Build a join of streams with one tuple each at every instant, whose results have both positions."""
    return WindowJoin(_LEFT, _RIGHT, on="key", window=window, memory=memory, policy=policy, allocation=allocation)


def push(join: WindowJoin, keys: Keys, begin: int = 0, end: int | None = None) -> Iterator[pa.RecordBatch]:
    """Push a stretch of both streams, and yield the results."""
    for take, side, schema in zip((join.push_left, join.push_right), keys, (_LEFT, _RIGHT), strict=True):
        positions = np.arange(side.size)[begin:end]
        yield from take(pa.record_batch([pa.array(side[begin:end]), pa.array(positions)], schema=schema))


def kept(keys: Keys, window: int, memory: int, policy: Policy, allocation: str = "fixed") -> int:
    """Count the results of a policy after the warm-up. Both streams have the same length, so no tuple waits."""
    join = operator(window, memory, policy, allocation)
    counted = 0
    for batch in push(join, keys):
        time = np.maximum(batch["left"].to_numpy(), batch["right"].to_numpy())
        counted += int(np.count_nonzero(time >= WARM_UP * window))
    return counted


def optimum(keys: Keys, window: int, memory: int, allocation: str = "fixed") -> int:
    """Return the most results that any policy could give after the warm-up."""
    best = optimal_offline(*keys, window=window, memory=memory, allocation=allocation, count_from=WARM_UP * window)
    return int(best.results)


def exact(keys: Keys, window: int) -> int:
    """Count the results after the warm-up with unlimited memory: those of the whole streams minus the warm-up."""
    begin = keys[0][: WARM_UP * window], keys[1][: WARM_UP * window]
    return count_window_pairs(*keys, window=window) - count_window_pairs(*begin, window=window)


def memory_sweep(keys: Sequence[Keys], window: int, names: Iterable[str] = POLICIES, *, optimal: bool = True) -> Rows:
    """Count the results of policies, optimum and exact join in each of `MEMORIES`, summed over pairs of streams."""
    rows = []
    for share in MEMORIES:
        memory = round(share * window)
        row: dict[str, Any] = {"window": window, "memory": memory, "memory / w": share}
        for each in keys:
            found = {name: kept(each, window, memory, policy) for name, policy in policies(each, names)}
            found |= {"OPT": optimum(each, window, memory)} if optimal else {}
            for name, results in {**found, "EXACT": exact(each, window)}.items():
                row[name] = row.get(name, 0) + results
        rows.append(row)
    return rows


def check_bounds(result: Rows) -> None:
    """Assert that no policy gives more results than the optimum, and the optimum no more than the exact join."""
    for row in result:
        names = [name for name in row if name.startswith(("PROB", "EXPECTED", "LIFE", "RANDOM"))]
        for name in names:
            most = "OPTV" if name.endswith("V") and "OPTV" in row else "OPT" if "OPT" in row else "EXACT"
            assert 0 <= row[name] <= row[most] <= row["EXACT"], (name, row)


def plot_lines(result: Rows, path: Path, *, by: str, x: str, names: Sequence[str], of: str | None, title: str) -> None:
    """Plot ``names``, or their shares of ``of``, against ``x``, in one part of the figure for each value of ``by``."""
    import matplotlib as mpl  # noqa: PLC0415  # an optional dependency

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    values = list(dict.fromkeys(row[by] for row in result))
    figure, parts = plt.subplots(1, len(values), figsize=(1 + 4 * len(values), 4), squeeze=False)
    for axes, value in zip(parts[0], values, strict=True):
        rows = [row for row in result if row[by] == value]
        for name in names:
            heights = [row[name] / (row[of] or 1) if of else row[name] for row in rows]
            axes.plot([row[x] for row in rows], heights, "--" if name == "EXPECTED" else "-", marker=".", label=name)
        axes.set(title=f"{by} {value}", xlabel=x, ylabel=f"results / {of}" if of else "results")
        axes.set_ylim(bottom=0)
        plain_axes(axes, "y")
        axes.legend(loc="lower right", fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
