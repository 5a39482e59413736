"""Plot of ``semistream window``: results against memory for all policies and the optimum."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from semistream.cli.plots import BLUE, GREY, RED, plain_axes
from semistream.cli.window.report import Windowed

_COLOURS = {"prob": BLUE, "life": "#d9a441", "expected": RED, "random": GREY}
_STYLES = {"expected": "--"}  # nearly equal to PROB: dashes keep both visible
_OPTIMUM = "#24292e"


def save_plot(path: Path, report: Windowed) -> None:
    """Draw the curve of a report; dotted lines mark the exact size and the given memory."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    memories = [point.memory for point in report.curve]
    if all(point.optimum is not None for point in report.curve):
        optima = [point.optimum or 0 for point in report.curve]
        axes.plot(memories, optima, color=_OPTIMUM, marker="x", markersize=5, label="optimum")
    for name in report.curve[0].results:
        results = [point.results[name] for point in report.curve]
        style = _STYLES.get(name, "-")
        axes.plot(memories, results, style, color=_COLOURS.get(name), marker="o", markersize=3, label=name.upper())
    axes.axhline(report.exact, color=_OPTIMUM, linestyle=":", linewidth=1)
    axes.annotate("exact", (0, report.exact), (4, 4), textcoords="offset points", fontsize=9, color=_OPTIMUM)
    if isinstance(report.memory, int):
        axes.axvline(report.memory, color=GREY, linestyle=":")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.08 * max(report.exact, 1))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_xlabel(f"memory in tuples, {report.allocation} allocation (exact from {report.exact_memory:,})")
    axes.set_ylabel("results")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    plain_axes(axes, "both")
    figure.suptitle(f"{report.left} join {report.right}, window {report.window}", x=0.01, ha="left", fontsize=11)
    figure.savefig(path, dpi=130)
