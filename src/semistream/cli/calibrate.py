"""``semistream calibrate``: measure this machine and a disk, for the cost models."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from semistream.cli.options import AsJson
from semistream.errors import SemistreamError

_INSTALL = "it takes matplotlib. Install it with `pip install 'semistream[plot]'`"


def calibrate(
    on: Annotated[
        Path,
        typer.Option("--on", metavar="PATH", help="The relation, or any folder or file on the disk that holds it."),
    ] = Path(),
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png", help="Where the plot goes: beside the profile unless given.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the disk and the kernels of this machine, in under a minute, and keep the profile."""
    can_draw = find_spec("matplotlib") is not None
    if plot is not None:
        _require_drawable(plot, can_draw=can_draw)
    from semistream.cli.output import show
    from semistream.cli.progress import step_progress
    from semistream.cli.reports import Calibrated
    from semistream.joins.calibrate import calibrate as measure

    with step_progress() as progress:
        calibration = measure(on, progress=progress)
    if not can_draw:
        show(Calibrated.of(calibration, plot=None, notes=[f"there is no plot: {_INSTALL}"]), as_json=as_json)
        return
    from semistream.cli.calibration_plot import save_plot

    drawn = calibration.file.with_suffix(".png") if plot is None else plot
    save_plot(drawn, calibration)
    show(Calibrated.of(calibration, plot=str(drawn), notes=[]), as_json=as_json)


def _require_drawable(plot: Path, *, can_draw: bool) -> None:
    """Refuse before anything is measured what would fail after it."""
    if not can_draw:
        raise SemistreamError(f"--plot is {str(plot)!r}, and {_INSTALL}, or leave --plot out.")
    if not plot.parent.is_dir():
        raise typer.BadParameter(f"--plot is {str(plot)!r}, but there is no folder {str(plot.parent)!r}.")
    if plot.suffix.lower() != ".png":
        raise typer.BadParameter(f"--plot is {str(plot)!r}; give a name that ends in .png.")
