"""Run benchmarks: ``python -m benchmarks [names] [--scale 0.1]``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.harness.command_line import CommandLine

BENCHMARKS = {
    "engine": "benchmarks.engine",
    "operators": "benchmarks.operators",
    "auto": "benchmarks.auto",
    "build": "benchmarks.build",
    "pages": "benchmarks.pages",
    "spark": "benchmarks.spark.spark_join",
    "pipeline": "benchmarks.spark.pipeline",
    "window": "benchmarks.window",
    "window-optimum": "benchmarks.window_optimum",
    "overload": "benchmarks.spark.overload",
    "walk": "benchmarks.walk",
    "start": "benchmarks.start",
    "small": "benchmarks.spark.small",
    "soak": "benchmarks.spark.soak",
}


def main() -> None:
    runs = CommandLine("benchmarks", __doc__, BENCHMARKS, most_scale=100, out=Path("bench-out")).read()
    console = Console(width=140 if not sys.stdout.isatty() else None)
    for name in runs.names:
        report = importlib.import_module(BENCHMARKS[name]).run(runs.scale, runs.out)
        report.show(console)
        console.print(f"  saved to {report.save(runs.out)}\n")


if __name__ == "__main__":
    main()
