"""Plot of the demo: rate and size of each micro-batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

if TYPE_CHECKING:
    from semistream.spark.demo import Batch

_COLOURS = ("#0b6e99", "#c8553d")


def save_plot(path: Path, runs: Mapping[str, Sequence[Batch]], sizes: Sequence[int], *, title: str) -> None:
    """Draw the rate of every run, batch by batch, above the batch sizes."""
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    rates, arrivals = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for (name, batches), colour in zip(runs.items(), _COLOURS, strict=False):
        numbers = [batch.number + 1 for batch in batches]
        rates.plot(numbers, [batch.rows_per_s for batch in batches], "o-", color=colour, markersize=4, label=name)
    rates.set_ylim(bottom=0)
    rates.set_ylabel("orders joined per second")
    rates.set_title(title, loc="left", fontsize=11)
    rates.legend(frameon=False)
    arrivals.bar(range(1, len(sizes) + 1), list(sizes), color="#b8c4cc", width=0.85)
    arrivals.set_ylabel("orders")
    arrivals.set_xlabel("micro-batch")
    arrivals.set_xlim(0.4, len(sizes) + 0.6)
    arrivals.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (rates, arrivals):
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e6e9ec")
        axes.set_axisbelow(True)
    figure.savefig(path, dpi=130)
