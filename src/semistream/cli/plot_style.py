"""How plots look: their colours and axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, RED, GREY = "#0b6e99", "#c8553d", "#b8c4cc"


def plain_axes(axes: Axes, grid: Literal["x", "y", "both"]) -> None:
    """Axes without a frame, on a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#e6e9ec")
    axes.set_axisbelow(True)
