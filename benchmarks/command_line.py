"""The command line of ``python -m benchmarks`` and ``python -m experiments``: names, a scale and a folder."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Runs:
    """What is to be run, at which share of its full size, and the folder for what comes of it."""

    names: tuple[str, ...]
    scale: float
    out: Path


@dataclass(frozen=True)
class CommandLine:
    """How ``python -m {package}`` is asked for ``known`` runs; ``most_scale`` is the largest scale that makes sense.

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
        """The runs that are asked for, all if none is named; a wrong word ends the process with what would be right."""
        known = ", ".join(self.known)
        parser = argparse.ArgumentParser(prog=f"python -m {self.package}", description=self.description)
        parser.add_argument("names", nargs="*", metavar="name", help=f"any of {known}; all if none is given")
        parser.add_argument(
            "--scale",
            type=float,
            default=1.0,
            help=f"share of the full size, more than 0 and at most {self.most_scale:g}",
        )
        parser.add_argument("--out", type=Path, default=self.out, help=f"folder for results, {self.out} unless given")
        given = parser.parse_args(words)
        if unknown := [name for name in given.names if name not in self.known]:
            parser.error(f"there is no {', '.join(unknown)}; there are {known}")
        if not 0 < given.scale <= self.most_scale:
            parser.error(f"--scale is {given.scale}; give more than 0, at most {self.most_scale:g}")
        return Runs(tuple(given.names or self.known), given.scale, given.out)
