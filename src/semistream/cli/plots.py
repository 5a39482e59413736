"""Checks before drawing a plot (matplotlib is optional, a path may be wrong), and the style of all plots."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from semistream.errors import SemistreamError
from semistream.storage.local_paths import local_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTALL = "plots need matplotlib. Install it with `pip install 'semistream[plot]'`"


def can_draw() -> bool:
    """True if matplotlib is installed; does not import it."""
    return find_spec("matplotlib") is not None


def require_drawable(plot: Path) -> Path:
    """Return the local path of a plot; raise an error before any work starts if it could not be drawn or saved."""
    plot = local_path(plot)
    if not can_draw():
        raise SemistreamError(f"--plot is {str(plot)!r}, but {INSTALL}, or leave --plot out.")
    if not plot.parent.is_dir():
        raise typer.BadParameter(f"--plot is {str(plot)!r}, but there is no folder {str(plot.parent)!r}.")
    if plot.suffix.lower() != ".png":
        raise typer.BadParameter(f"--plot is {str(plot)!r}; give a name that ends in .png.")
    return plot


BLUE, RED, GREY = "#0b6e99", "#c8553d", "#b8c4cc"


def plain_axes(axes: Axes, grid: Literal["x", "y", "both"]) -> None:
    """Remove the frame of some axes and draw a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#e6e9ec")
    axes.set_axisbelow(True)
