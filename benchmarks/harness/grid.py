"""Rates of operators over settings, as a table, a plot of small multiples, and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter
from rich.console import Console
from rich.table import Table

from benchmarks.harness.report import environment
from semistream.budget import format_bytes
from semistream.cli.plots import plain_axes

_COLOURS = (
    "#0b6e99",
    "#c8553d",
    "#4d8f3a",
    "#8a5aa8",
    "#d79b2e",
    "#5b6770",
    "#2fa8a0",
    "#b03a68",
    "#1f3a5f",
    "#97763f",
)


@dataclass(frozen=True)
class Setting:
    """Setting of a run: rows of R, Zipf exponent of the stream, memory as a share of R."""

    rows: int
    exponent: float
    share: float


@dataclass(frozen=True)
class Cell:
    """Rate of an operator in a setting; None if its budget was too small, with the least bytes needed if known."""

    operator: str
    setting: Setting
    per_second: float | None
    tuples: int = 0
    least_bytes: int | None = None

    @property
    def text(self) -> str:
        if self.per_second is None:
            return "too small" if self.least_bytes is None else f"needs {format_bytes(self.least_bytes)}"
        if math.isinf(self.per_second):
            return "no reads"
        return EngFormatter(places=2, sep=" ")(self.per_second)


@dataclass
class Grid:
    """Cells with one kind of time, named by ``unit``."""

    title: str
    unit: str
    cells: list[Cell] = field(default_factory=list)

    @property
    def operators(self) -> list[str]:
        return list(dict.fromkeys(cell.operator for cell in self.cells))

    @property
    def settings(self) -> list[Setting]:
        return list(dict.fromkeys(cell.setting for cell in self.cells))

    def rate(self, operator: str, setting: Setting) -> float | None:
        found = (cell.per_second for cell in self.cells if (cell.operator, cell.setting) == (operator, setting))
        return next(found, None)

    def rates(self, operator: str) -> dict[Setting, float]:
        """Return an operator's rates in all settings with enough memory."""
        return {
            cell.setting: cell.per_second
            for cell in self.cells
            if cell.operator == operator and cell.per_second is not None
        }

    def table(self) -> Table:
        """Return a table with a line per setting and a column per operator; the best rate of a line is bold."""
        table = Table(title=f"{self.title} ({self.unit})", title_justify="left")
        for heading in ("R", "Zipf", "memory", *self.operators):
            table.add_column(heading, justify="right", no_wrap=True)
        before: Setting | None = None
        for setting in self.settings:
            cells = {cell.operator: cell for cell in self.cells if cell.setting == setting}
            best = max((cell.per_second for cell in cells.values() if cell.per_second is not None), default=None)
            in_order = [cells[operator] for operator in self.operators]
            texts = [f"[bold]{cell.text}[/]" if best and cell.per_second == best else cell.text for cell in in_order]
            same = before is not None and (before.rows, before.exponent) == (setting.rows, setting.exponent)
            head = ("", "") if same else (f"{setting.rows:,}", f"{setting.exponent:g}")
            if before is not None and not same:
                table.add_section()
            table.add_row(*head, f"{setting.share:.1%}", *texts)
            before = setting
        return table


@dataclass
class GridReport:
    """Result of a benchmark over settings, as `Report` is for one with a line per contestant."""

    benchmark: str
    scale: float
    setup: str
    grids: list[Grid]
    remarks: list[str]

    def show(self, console: Console) -> None:
        console.print(f"{self.benchmark}: {self.setup}")
        for grid in self.grids:
            console.print(grid.table())
        for text in self.remarks:
            console.print(f"  {text}", soft_wrap=True, highlight=False)

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.benchmark}.json"
        record = {
            "benchmark": self.benchmark,
            "scale": self.scale,
            "setup": self.setup,
            "grids": [{"title": g.title, "unit": g.unit, "cells": list(map(_record, g.cells))} for g in self.grids],
            "remarks": self.remarks,
            "environment": environment(),
        }
        path.write_text(json.dumps(record, indent=1, allow_nan=False))
        self._plot(folder / f"{self.benchmark}.png")
        return path

    def _plot(self, path: Path) -> None:
        """Plot rate against memory, with an axis for each R and exponent, and a line for each operator."""
        rows = [(grid, size) for grid in self.grids for size in dict.fromkeys(s.rows for s in grid.settings)]
        exponents = list(dict.fromkeys(s.exponent for grid in self.grids for s in grid.settings))
        operators = list(dict.fromkeys(name for grid in self.grids for name in grid.operators))
        figure = Figure(figsize=(3.2 * len(exponents), 2.9 * len(rows) + 0.6), layout="constrained")
        axes = figure.subplots(len(rows), len(exponents), sharex=True, sharey="row", squeeze=False)
        for line, (grid, size) in zip(axes, rows, strict=True):
            for axis, exponent in zip(line, exponents, strict=True):
                for operator, colour in zip(operators, _colours(), strict=False):
                    points = _points(grid, operator, size, exponent)
                    axis.plot(*zip(*points, strict=True) if points else ([], []), "o-", color=colour, markersize=3)
                _label(axis, f"Zipf {exponent:g}, R {size:,}")
            line[0].set_ylabel(grid.unit)
        for axis in axes[-1]:
            axis.set_xlabel("memory, share of R")
        figure.legend(axes[0][0].lines, operators, loc="outside lower center", ncols=len(operators), frameon=False)
        figure.savefig(path, dpi=130)


def _colours() -> Iterator[str]:
    while True:
        yield from _COLOURS


def _points(grid: Grid, operator: str, size: int, exponent: float) -> list[tuple[float, float]]:
    return [
        (setting.share, rate)
        for setting, rate in grid.rates(operator).items()
        if (setting.rows, setting.exponent) == (size, exponent) and math.isfinite(rate)
    ]


def _label(axis: Axes, title: str) -> None:
    axis.set_title(title, loc="left", fontsize=9)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    axis.yaxis.set_major_formatter(EngFormatter(sep=" "))
    plain_axes(axis, "both")


def _record(cell: Cell) -> dict[str, object]:
    """Convert a cell for JSON, which has no infinity."""
    finite = cell.per_second is not None and math.isfinite(cell.per_second)
    values = asdict(cell) | asdict(cell.setting) | {"per_second": cell.per_second if finite else None}
    del values["setting"]
    return values | {"text": cell.text}
