"""``semistream calibrate``: measure this machine and a disk for the cost models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semistream.cli.options import AsJson
from semistream.cli.plots import INSTALL, can_draw, require_drawable


def calibrate(
    on: Annotated[
        Path,
        typer.Option("--on", metavar="PATH", help="Relation, or any file or folder on its disk."),
    ] = Path(),
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="File for the plot (default: next to the profile).", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the disk and operators of this machine in under a minute, and save the profile."""
    if plot is not None:
        plot = require_drawable(plot)
    from semistream.cli.output import show
    from semistream.cli.progress import step_progress
    from semistream.cli.reports import Calibrated
    from semistream.tuning.calibration.calibrate import calibrate as measure

    with step_progress() as progress:
        calibration = measure(on, progress=progress)
    if not can_draw():
        show(Calibrated.of(calibration, plot=None, notes=[f"no plot drawn: {INSTALL}"]), as_json=as_json)
        return
    from semistream.cli.calibration_plot import save_plot

    drawn = calibration.file.with_suffix(".png") if plot is None else plot
    save_plot(drawn, calibration)
    show(Calibrated.of(calibration, plot=str(drawn), notes=[]), as_json=as_json)
