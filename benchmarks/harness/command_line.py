"""Command line of ``python -m benchmarks`` and ``python -m experiments``: names, a scale and a folder."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Runs:
    """Names to run, their scale relative to the full size, and the folder for results."""

    names: tuple[str, ...]
    scale: float
    out: Path


@dataclass(frozen=True)
class CommandLine:
    """Arguments of ``python -m {package}``: some of the ``known`` names, a scale up to ``most_scale``, and a folder.

    >>> asked = CommandLine("benchmarks", "Run them.", ("engine", "build"), 100.0, Path("bench-out"))
    >>> asked.read(["build", "--scale", "0.1"])
    Runs(names=('build',), scale=0.1, out=PosixPath('bench-out'))
    >>> asked.read([]).names
    ('engine', 'build')
    """

    package: str
    description: str | None
    known: Iterable[str]
    most_scale: float
    out: Path

    def read(self, words: Sequence[str] | None = None) -> Runs:
        """Parse the arguments; without names, all are run. An invalid argument exits with a message on valid ones."""
        known = ", ".join(self.known)
        parser = argparse.ArgumentParser(prog=f"python -m {self.package}", description=self.description)
        parser.add_argument("names", nargs="*", metavar="name", help=f"any of {known}; default: all")
        parser.add_argument(
            "--scale",
            type=float,
            default=1.0,
            help=f"share of the full size, more than 0 and at most {self.most_scale:g}",
        )
        parser.add_argument("--out", type=Path, default=self.out, help=f"folder for results; default: {self.out}")
        given = parser.parse_args(words)
        if unknown := [name for name in given.names if name not in self.known]:
            parser.error(f"unknown name {', '.join(unknown)}; give any of {known}")
        if not 0 < given.scale <= self.most_scale:
            parser.error(f"--scale is {given.scale}; give more than 0, at most {self.most_scale:g}")
        return Runs(tuple(given.names or self.known), given.scale, given.out)
