"""Whether a plot can be drawn: matplotlib is optional, and a path may be wrong.

How plots look: their colours and axes.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from semistream.errors import SemistreamError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTALL = "it takes matplotlib. Install it with `pip install 'semistream[plot]'`"


def can_draw() -> bool:
    """Whether matplotlib is installed; it is not imported to find out."""
    return find_spec("matplotlib") is not None


def require_drawable(plot: Path) -> None:
    """Refuse before anything is done what would fail after it."""
    if not can_draw():
        raise SemistreamError(f"--plot is {str(plot)!r}, and {INSTALL}, or leave --plot out.")
    if not plot.parent.is_dir():
        raise typer.BadParameter(f"--plot is {str(plot)!r}, but there is no folder {str(plot.parent)!r}.")
    if plot.suffix.lower() != ".png":
        raise typer.BadParameter(f"--plot is {str(plot)!r}; give a name that ends in .png.")


BLUE, RED, GREY = "#0b6e99", "#c8553d", "#b8c4cc"


def plain_axes(axes: Axes, grid: Literal["x", "y", "both"]) -> None:
    """Axes without a frame, on a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#e6e9ec")
    axes.set_axisbelow(True)
