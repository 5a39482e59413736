"""Plot of an explanation: rate and hit rate against memory."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, PercentFormatter

from semistream.budget import format_bytes
from semistream.cli.plots import BLUE, RED, plain_axes
from semistream.tuning.cache_curve import CACHE_SHARE
from semistream.tuning.wording import asked_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

    from semistream.tuning.explanation import CurvePoint, Explanation

_AT_HAND = "#5b6770"
_DECADES = 100  # ratio of most to least memory up to which ticks between powers of ten are labelled
_REGIONS = {
    "engine": "#e3f0f5",
    "sweep": "#e9f3e6",
    "hybrid": "#f8efdc",
    "index": "#efe6f4",
    "mesh": "#f6e4df",
    "adaptive_mesh": "#fbeee9",
    "cmesh": "#f2dde4",
    "nested_loop": "#eceff1",
    "resident": "#c5e1a5",
}


def save_plot(path: Path, explanation: Explanation, *, title: str) -> None:
    """Draw the rate above the hit rate, both against memory; colours show the operator chosen in each region."""
    figure = Figure(figsize=(9, 6.5), layout="constrained")
    axes = figure.subplot_mosaic([["rate"], ["hits"]], sharex=True, height_ratios=[3, 2])
    _draw_rate(axes["rate"], explanation)
    _draw_hit_rate(axes["hits"], explanation)
    for each in axes.values():
        _draw_operators(each, explanation)
        each.axvline(explanation.memory_bytes, color=_AT_HAND, linestyle=":", zorder=1)
        plain_axes(each, "both")
    _name_operators(axes["rate"], explanation)
    _draw_memory(axes["hits"], explanation)
    figure.suptitle(f"{title} ({explanation.machine})", x=0.01, ha="left", fontsize=11)
    figure.savefig(path, dpi=130)


def _draw_rate(axes: Axes, explanation: Explanation) -> None:
    """Draw the rates; the line skips rates without a bound."""
    bound = [point for point in explanation.curve if math.isfinite(point.rate)]
    axes.plot([point.memory_bytes for point in bound], [point.rate for point in bound], color=BLUE)
    if math.isfinite(explanation.choice.rate):
        axes.plot(explanation.memory_bytes, explanation.choice.rate, "o", color=BLUE)
    if explanation.rate is not None:
        axes.axhline(explanation.rate, color=RED, linestyle="--", linewidth=1)
        _name(axes, f"wanted: {asked_text(explanation.rate)}", explanation.curve[0].memory_bytes, explanation.rate, RED)
        _mark_answer(axes, explanation.rate, bound)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("tuples per second")


def _mark_answer(axes: Axes, rate: float, curve: list[CurvePoint]) -> None:
    """Mark the memory from which on the curve reaches a rate."""
    for low, high in pairwise(curve):
        if low.rate < rate <= high.rate:
            share = math.log(rate / low.rate) / math.log(high.rate / low.rate)
            memory = low.memory_bytes * (high.memory_bytes / low.memory_bytes) ** share
            axes.plot(memory, rate, "D", color=RED, markersize=7, zorder=3)
            _name(axes, f"from {format_bytes(round(memory))}", memory, rate, RED, gap=-4)
            return


def _draw_hit_rate(axes: Axes, explanation: Explanation) -> None:
    curve = explanation.curve
    memories, rates = [point.memory_bytes for point in curve], [point.hit_rate for point in curve]
    axes.plot(memories, rates, color=BLUE)
    axes.plot(explanation.memory_bytes, explanation.choice.hit_rate, "o", color=BLUE)
    caches = explanation.cache_curve
    if caches:
        by_law = [point.modelled for point in caches]
        sizes = [point.memory_bytes for point in caches]
        axes.plot(sizes, by_law, "--", color=RED)
        _name(axes, f"a cache with {CACHE_SHARE:.0%} of the memory", sizes[-1], by_law[-1], RED, left=True)
        sampled = [point.sampled or 0.0 for point in caches]
        if caches[0].sampled is not None:
            axes.plot(sizes, sampled, ":", color=_AT_HAND, linewidth=2)
            _name(axes, "the same, by reuse in the sample", sizes[-1], sampled[-1], _AT_HAND, left=True, gap=-22)
    cached = [point for point in curve if point.hit_rate > 0]
    if cached:
        last = cached[-1]
        ends = last is curve[-1]
        _name(axes, "the chosen operator", last.memory_bytes, last.hit_rate, BLUE, left=ends, gap=-14 if ends else 1)
    for number, (before, after) in enumerate(pairwise(rates)):
        if before > 0 and after == 0:
            _name(
                axes, f" no cache here: {curve[number + 1].operator} is faster without", memories[number + 1], 0, BLUE
            )
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("hit rate")


def _name(axes: Axes, text: str, x: float, y: float, colour: str, *, left: bool = False, gap: int = 4) -> None:
    """Write beside a line what it is, ``gap`` points above it."""
    axes.annotate(
        text,
        (x, y),
        xytext=(-6 if left else 6, gap),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top" if gap < 0 else "bottom",
        color=colour,
        fontsize=9,
        zorder=4,
        bbox={"facecolor": "white", "alpha": 0.6, "edgecolor": "none", "pad": 0.5},  # where a line passes behind it
    )


def _draw_memory(axes: Axes, explanation: Explanation) -> None:
    """Format the shared memory axis and name the given memory."""
    least, most = explanation.curve[0].memory_bytes, explanation.curve[-1].memory_bytes
    axes.set_xscale("log")
    axes.set_xlim(least, most)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if most > _DECADES * least else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda nbytes, _: format_bytes(round(nbytes)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"memory (dotted line: the given {format_bytes(explanation.memory_bytes)})")


def _draw_operators(axes: Axes, explanation: Explanation) -> None:
    for operator, begin, end in _regions(explanation.curve):
        axes.axvspan(begin, end, color=_REGIONS.get(operator, "#ffffff"), linewidth=0, zorder=0)


def _name_operators(axes: Axes, explanation: Explanation) -> None:
    """Write the operator above each region, rotated where there is little room."""
    least, most = (math.log(explanation.curve[end].memory_bytes) for end in (0, -1))
    for operator, begin, end in _regions(explanation.curve):
        share = (math.log(end) - math.log(begin)) / (most - least)
        axes.annotate(
            operator,
            (math.sqrt(begin * end), 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center" if share > 0.015 * len(operator) else "left",
            va="bottom",
            rotation=0 if share > 0.015 * len(operator) else 45,
            fontsize=8,
            color=_AT_HAND,
            annotation_clip=False,
        )


def _regions(curve: tuple[CurvePoint, ...]) -> Iterator[tuple[str, float, float]]:
    """Yield the memory regions with one operator; boundaries lie half way between points on the log axis."""
    memories = [point.memory_bytes for point in curve]
    between = [math.sqrt(low * high) for low, high in pairwise(memories)]
    ends = [memories[0], *between, memories[-1]]
    for operator, points in groupby(range(len(curve)), key=lambda number: curve[number].operator):
        numbers = list(points)
        yield operator, ends[numbers[0]], ends[numbers[-1] + 1]
