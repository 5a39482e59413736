"""``semistream compile``: compile the kernels ahead, for this machine or for others."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from semistream.cli.options import AsJson
from semistream.cli.output import Report, show
from semistream.storage.local_paths import local_path


@dataclass(frozen=True)
class CompiledKernels(Report):
    """Kernels compiled for a processor level, the seconds that took, and their folder."""

    level: str
    kernels: int
    seconds: float
    folder: str

    def text(self) -> RenderableType:
        if self.kernels == 0:
            return f"all kernels for {self.level} are compiled already"
        return f"{self.kernels} kernels compiled for {self.level}, once: {self.seconds:.0f} s ({self.folder})"


def compile_kernels(
    level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Processor level, such as x86-64-v3: the code runs on every processor that has it (default: the best "
            "of this machine).",
            show_default=False,
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the code; processes find it by SEMISTREAM_KERNELS (default: the user's cache).",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile all kernels that are not compiled yet, on all cores, so that no join waits for the compiler."""
    from semistream.cli.progress import counted
    from semistream.kernels.compiler.compile_all import compile_all
    from semistream.kernels.compiler.store import FOLDER_VARIABLE, STORE

    if into is not None:
        os.environ[FOLDER_VARIABLE] = str(local_path(into).resolve())
    with counted("compile kernels for this machine, once") as progress:
        done = compile_all(level, progress)
    show(CompiledKernels(done.level, done.kernels, done.seconds, str(STORE.folder)), as_json=as_json)
