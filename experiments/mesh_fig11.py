"""MESH Fig. 11: fraction of the results that TOPW and the optimum keep, against the speed ratio.

The stream is rho times as fast as MESHJOIN: while the join processes ``w`` tuples, rho * w arrive. Of each such
interval TOPW keeps the best ``w``. The optimum (OPTOFFLINESHED) knows the whole stream and may make the join wait. For
both, the join asks for its first packet after one interval.

The paper draws S and R from Zipf's distribution over one domain of 3.5 million values, ``z_S`` 0.5 and ``z_R`` 0.1, 0.5
and 1. It leaves three things open:

- Are values frequent in S also frequent in R? Here they are: both number the values from the most frequent one.
- How was R made? This matters if R is nearly uniform, so both ways are run. ``drawn``: each row takes a random value,
  so some values have several rows and others none. ``dealt``: each value has its share of the rows, rounded, so all
  tuples contribute about the same ("equal contributions from all stream tuples").
- The value of ``w``, which makes little difference.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.mesh_loop import top_w_loss
from semistream.cli.plots import plain_axes
from semistream.datasets import Zipf
from semistream.shedding import OptimalOffline

PARAMS: dict[str, Any] = {
    "speed_ratios": (1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0),
    "relation_skews": (0.1, 0.5, 1.0),
    "stream_skew": 0.5,
    "domain": 3_500_000,
    "relation_rows": 3_500_000,
    "tuples_per_ratio": 20_000,
    "streams": 10,
    "w": 100,
}

Rows = list[dict[str, Any]]
Int64s = npt.NDArray[np.int64]


def run(scale: float = 1.0) -> Rows:
    """Return the mean fraction of results over several streams, for each way to make R, skew and ratio."""
    domain, rows = (max(int(PARAMS[name] * scale), 1000) for name in ("domain", "relation_rows"))
    streams = max(round(PARAMS["streams"] * scale), 2)
    w = PARAMS["w"]
    result = []
    for made in ("drawn", "dealt"):
        for skew in PARAMS["relation_skews"]:
            rows_of_key = _relation(made, skew, domain, rows)
            for ratio in PARAMS["speed_ratios"]:
                c_loop = round(ratio * w)
                tuples = max(round(ratio * PARAMS["tuples_per_ratio"] * scale), 10 * c_loop)
                fractions = []
                for seed in range(streams):
                    keys = Zipf(PARAMS["stream_skew"], domain, seed=seed + 1, permute=False).keys(tuples)
                    matches = rows_of_key[keys]
                    best = OptimalOffline(w, c_loop, first_request=c_loop).schedule(matches)
                    lost = np.array([top_w_loss(matches, w=w, c_loop=c_loop, seed=seed), best.loss])
                    fractions.append(1 - lost / matches.sum())
                top_w, optimum = np.mean(fractions, axis=0).tolist()
                result.append({"R": made, "skew of R": skew, "speed ratio": ratio, "TOPW": top_w, "optimum": optimum})
    return result


def _relation(made: str, skew: float, domain: int, rows: int) -> Int64s:
    """Return the number of R's rows with each value, most frequent first."""
    zipf = Zipf(skew, domain, seed=0, permute=False)
    if made == "drawn":
        return np.bincount(zipf.keys(rows), minlength=domain)
    share = np.cumsum(zipf.probability(np.arange(1, domain + 1)))
    return np.diff(np.rint(share / share[-1] * rows).astype(np.int64), prepend=0)


def check(result: Rows) -> None:
    """Assert the findings of the paper (5.2, "Approximate join processing")."""
    for row in result:
        # "We omit the results of OPTOFFLINESHED from the plot as the two curves were essentially identical."
        assert row["TOPW"] <= row["optimum"] + 1e-12, row
        assert row["optimum"] - row["TOPW"] < 0.01, row
        # "For z_R = 0.5 TOPW generates more than 80 percent of the complete join results even when the stream is two
        # times faster than the maximum service rate."
        if row["skew of R"] == 0.5:
            assert row["TOPW"] > 0.8, row
        # The fraction of results is never below the fraction of tuples kept.
        assert row["TOPW"] >= 1 / row["speed ratio"] - 0.01, row
    # "The performance of TOPW generally increases with the skew in the disk-based relation." (Where hardly anything is
    # lost, a nearly uniform R drawn at random has more values without rows, and may be slightly ahead.)
    for made in ("drawn", "dealt"):
        for ratio in PARAMS["speed_ratios"]:
            curve = [row["TOPW"] for row in result if (row["R"], row["speed ratio"]) == (made, ratio)]
            assert all(more > less - 0.01 for less, more in pairwise(curve)), (made, ratio, curve)
        assert curve == sorted(curve), (made, ratio, curve)
    # A faster stream loses more of its results.
    for made in ("drawn", "dealt"):
        for skew in PARAMS["relation_skews"]:
            curve = [row["TOPW"] for row in result if (row["R"], row["skew of R"]) == (made, skew)]
            assert curve == sorted(curve, reverse=True), (made, skew, curve)


def plot(result: Rows, path: Path) -> None:
    """Plot lines for TOPW and crosses for the optimum, in one half for each way to make R."""
    import matplotlib as mpl  # noqa: PLC0415  # an optional dependency

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, halves = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axes, made in zip(halves, ("drawn", "dealt"), strict=True):
        for skew in PARAMS["relation_skews"]:
            rows = [row for row in result if (row["R"], row["skew of R"]) == (made, skew)]
            ratios = [row["speed ratio"] for row in rows]
            (line,) = axes.plot(ratios, [row["TOPW"] for row in rows], label=f"TOPW, skew of R {skew}")
            axes.plot(ratios, [row["optimum"] for row in rows], "x", color=line.get_color())
        axes.set(title=f"R {made}; x: optimum", xlabel="speed of the stream / speed of the join", ylim=(0.4, 1.02))
        plain_axes(axes, "y")
        axes.legend(loc="lower left", frameon=False)
    halves[0].set_ylabel("fraction of results")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
