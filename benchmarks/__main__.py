"""Run benchmarks: ``python -m benchmarks [names] [--scale 0.1]``."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from rich.console import Console

BENCHMARKS = {
    "engine": "benchmarks.engine",
    "operators": "benchmarks.operators",
    "auto": "benchmarks.auto",
    "build": "benchmarks.build",
    "pages": "benchmarks.pages",
    "spark": "benchmarks.spark_join",
    "pipeline": "benchmarks.pipeline",
    "window": "benchmarks.window",
    "window-optimum": "benchmarks.window_optimum",
    "overload": "benchmarks.overload",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"any of {', '.join(BENCHMARKS)}; all if none is given"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size (10 M rows of R)")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="folder for data and results")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if not 0 < arguments.scale <= 100:
        parser.error(f"--scale is {arguments.scale}; give more than 0, at most 100")
    console = Console(width=140 if not sys.stdout.isatty() else None)
    for name in arguments.names or BENCHMARKS:
        report = importlib.import_module(BENCHMARKS[name]).run(arguments.scale, arguments.out)
        report.show(console)
        console.print(f"  saved to {report.save(arguments.out)}\n")


if __name__ == "__main__":
    main()
