"""Run experiments: ``python -m experiments [names] [--scale 0.1] [--out folder]``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from benchmarks.harness.command_line import CommandLine
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
    """Run the named experiments, or all: print each result, check the findings, and plot them."""
    runs = CommandLine("experiments", __doc__, EXPERIMENTS, most_scale=1, out=Path("experiments-out")).read()
    console = Console(width=None if sys.stdout.isatty() else 140)
    for name in runs.names:
        experiment = importlib.import_module(f"experiments.{name}")
        console.rule(f"{name}: {experiment.__doc__.splitlines()[0]}")
        result = experiment.run(runs.scale)
        console.print(_table(result))
        experiment.check(result)
        console.print("all findings hold")
        if importlib.util.find_spec("matplotlib"):
            runs.out.mkdir(parents=True, exist_ok=True)
            path = runs.out / f"{name}.png"
            experiment.plot(result, path)
            console.print(f"plotted to {path}\n")
        else:
            console.print("not plotted; to plot it: pip install 'semistream[plot]'\n")


def _table(result: list[dict[str, object]]) -> Table:
    table = Table(*result[0])
    for row in result:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


if __name__ == "__main__":
    main()
