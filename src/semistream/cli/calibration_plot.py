"""Plot of a calibration: time and throughput of disk requests by size, and the cost of a tuple in each operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, NullFormatter, NullLocator

from semistream.cli.plots import BLUE, GREY, RED, plain_axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from semistream.costs.machine import OperatorCosts
    from semistream.tuning.calibration.calibrate import Calibration

_MEASURED, _FITTED, _BARS = BLUE, RED, GREY
_DPI = 130
_NAMED = (1, 1.5, 2, 3, 5, 7)  # multiples of a power of ten to label: with more, labels would overlap


def save_plot(path: Path, calibration: Calibration) -> None:
    """Write the plot to a file."""
    draw_plot(calibration).savefig(path, dpi=_DPI)


def draw_plot(calibration: Calibration) -> Figure:
    """Draw the measured requests and the fitted line, and below them the operators if any was measured."""
    operators = calibration.machine.operators
    figure = Figure(figsize=(9, 7 if operators else 3.5), dpi=_DPI, layout="constrained")
    axes = figure.subplot_mosaic(
        [["times", "rates"], ["operators", "operators"]] if operators else [["times", "rates"]]
    )
    _draw_requests(axes["times"], axes["rates"], calibration)
    if operators:
        _draw_operators(axes["operators"], operators)
    figure.suptitle(
        f"{calibration.machine.name}, {calibration.profile.measured_at[:10]}", x=0.01, ha="left", fontsize=11
    )
    return figure


def _draw_requests(times: Axes, rates: Axes, calibration: Calibration) -> None:
    costs = calibration.disk.costs
    sizes = np.array([each.nbytes for each in calibration.disk.times], float)
    seconds = np.array([each.seconds for each in calibration.disk.times])
    line = np.geomspace(sizes[0], sizes[-1], 100)
    fitted = np.array([costs.request_s(nbytes, 1) for nbytes in line])
    times.plot(line, fitted, color=_FITTED, label=_said(costs.seek_s, costs.transfer_s_per_byte))
    times.plot(sizes, seconds, "o", color=_MEASURED, label="measured (median)")
    times.set_ylabel("time of a random read")
    times.set_yscale("log")
    times.yaxis.set_major_locator(LogLocator(subs=_NAMED))
    times.yaxis.set_major_formatter(EngFormatter("s"))
    times.yaxis.set_minor_formatter(NullFormatter())
    times.legend(frameon=False, fontsize=9)
    rates.plot(line, line / fitted, color=_FITTED)
    rates.plot(sizes, sizes / seconds, "o", color=_MEASURED)
    rates.set_ylabel("throughput")
    rates.set_ylim(bottom=0)
    rates.yaxis.set_major_formatter(EngFormatter("B/s"))
    for axes in (times, rates):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(sizes.tolist()))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda nbytes, _: _binary(nbytes))
        axes.tick_params(which="both", labelsize=8)
        axes.set_xlabel("request size" + ("" if calibration.disk.direct else ", through the page cache"))
        plain_axes(axes, "y")


def _draw_operators(axes: Axes, operators: Mapping[str, OperatorCosts]) -> None:
    tuples_s = [costs.tuple_s + costs.entry_s for costs in operators.values()]
    bars = axes.barh(list(operators), tuples_s, color=_BARS)
    axes.bar_label(bars, [f"{seconds * 1e9:.3g} ns" for seconds in tuples_s], padding=4, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter(EngFormatter("s"))
    axes.set_xlabel("processor time per joined tuple, without its share of values, rows of R and iterations")
    plain_axes(axes, "x")


def _said(seek_s: float, transfer_s_per_byte: float) -> str:
    rate = f" + bytes / ({_short(1 / transfer_s_per_byte, 'B/s')})" if transfer_s_per_byte else ""
    return f"{_short(seek_s, 's')}{rate}"


def _short(number: float, unit: str) -> str:
    """Format a number with three digits and a unit prefix."""
    return str(EngFormatter(unit)(float(f"{number:.3g}")))


def _binary(nbytes: float) -> str:
    return f"{nbytes / 2**20:g} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:g} KiB"
