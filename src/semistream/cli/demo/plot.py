"""Picture of the demo: how long orders take to their table, and what a batch costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from semistream.budget import format_bytes
from semistream.cli.plots import BLUE, RED, plain_axes

if TYPE_CHECKING:
    from semistream.cli.demo.report import DemoReport

_OURS, _SPARKS = BLUE, RED


def save_plot(path: Path, report: DemoReport) -> None:
    """Draw the lag of each batch against its arrival, and beside it seconds, bytes and memory of a batch."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    axes = figure.subplot_mosaic([["lag", each] for each in ("seconds", "moved", "memory")], width_ratios=[1.55, 1])
    _draw_lags(axes["lag"], report)
    ours, left = report.ours, report.left
    _draw_bars(axes["seconds"], "seconds per batch", ours.seconds, left.seconds, lambda value: f"{value:.2f} s")
    _draw_bars(axes["moved"], "read and shuffled per batch", ours.bytes_moved, left.bytes_moved, _bytes)
    _draw_bars(axes["memory"], "memory for the joins, at most", ours.peak_bytes, left.memory_bytes or 0, _bytes)
    figure.suptitle(
        f"{report.products:,} products ({format_bytes(report.relation_bytes)}), a burst of orders every "
        f"{report.every_s:g} s, {report.cores} cores",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    figure.savefig(path, dpi=130)


def _draw_lags(axes: Axes, report: DemoReport) -> None:
    for name, each, colour in (
        ("semistream", report.ours, _OURS),
        ("Spark's own left join", report.left, _SPARKS),
    ):
        begin = each.arrived[min(1, len(each.arrived) - 1)]
        points = [(each.arrived[batch.number] - begin, batch.lag_s) for batch in each.steady]
        times, lags = zip(*points, strict=True)
        axes.plot(times, lags, "o-", color=colour, markersize=5, linewidth=2)
        axes.annotate(name, points[-1], xytext=(8, 0), textcoords="offset points", color=colour, weight="bold")
    kill = report.ours.kill
    begin = report.ours.arrived[min(1, len(report.ours.arrived) - 1)]
    axes.axvline(kill.at - begin, color=_OURS, linestyle=":", linewidth=1.5)
    axes.annotate(
        f"killed, back after {kill.back_after_s:.0f} s:\nno row lost, none twice",
        (kill.at - begin, 0.5),
        xycoords=("data", "axes fraction"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=_OURS,
        fontsize=9,
    )
    axes.set_ylim(bottom=0)
    axes.margins(x=0.2, y=0.15)
    axes.set_xlabel("time at which orders arrive, seconds")
    axes.set_title("seconds until orders are in their table", loc="left", fontsize=11)
    plain_axes(axes, "y")


def _draw_bars(axes: Axes, title: str, ours: float, sparks: float, text: object) -> None:
    assert callable(text)
    for place, (name, value, colour) in enumerate((("Spark", sparks, _SPARKS), ("semistream", ours, _OURS))):
        axes.barh(place, value, color=colour, height=0.62)
        axes.annotate(
            text(value) if value else "not sampled",
            (value, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
        axes.annotate(
            name, (0, place), xytext=(-4, 0), textcoords="offset points", va="center", ha="right", color=colour
        )
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlim(0, 1.35 * max(ours, sparks, 1e-9))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _bytes(nbytes: float) -> str:
    return format_bytes(round(nbytes))
