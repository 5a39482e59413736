"""Run experiments: ``python -m experiments [names] [--scale 0.1] [--out folder]``."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

EXPERIMENTS = (
    "mesh_fig11",
    "cost_aware_shedding",
    "window_fig7",
    "window_fig9",
    "window_fig10",
    "window_fig12",
    "window_fig13",
    "window_fig15",
    "window_fig17",
)


def main() -> None:
    """Run those that are named, or all: show each result, check it against what is claimed, and plot it."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"any of {', '.join(EXPERIMENTS)}; all if none is given"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size, more than 0 and at most 1")
    parser.add_argument("--out", type=Path, default=Path("experiments-out"), help="folder for plots")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in EXPERIMENTS]:
        parser.error(f"no experiment called {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    if not 0 < arguments.scale <= 1:
        parser.error(f"--scale is {arguments.scale}; give more than 0, at most 1")
    console = Console(width=None if sys.stdout.isatty() else 140)
    for name in arguments.names or EXPERIMENTS:
        experiment = importlib.import_module(f"experiments.{name}")
        console.rule(f"{name}: {experiment.__doc__.splitlines()[0]}")
        result = experiment.run(arguments.scale)
        console.print(_table(result))
        experiment.check(result)
        console.print("all findings hold")
        if importlib.util.find_spec("matplotlib"):
            arguments.out.mkdir(parents=True, exist_ok=True)
            path = arguments.out / f"{name}.png"
            experiment.plot(result, path)
            console.print(f"plotted to {path}\n")
        else:
            console.print("pip install 'semistream[plot]' to plot it\n")


def _table(result: list[dict[str, object]]) -> Table:
    table = Table(*result[0])
    for row in result:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


if __name__ == "__main__":
    main()
