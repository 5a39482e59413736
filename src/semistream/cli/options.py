"""Options that several commands have.

What ``join`` and ``explain`` both ask about a join, and how it is read.

What commands on Spark need beyond the library itself; said before any work is done.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from semistream.errors import SemistreamError

AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON on stdout, and nothing else there.")]


class How(StrEnum):
    """Kinds of join, as `semistream.join` has them."""

    inner = "inner"
    left = "left"
    semi = "semi"
    anti = "anti"


HowOption = Annotated[How, typer.Option("--how", help="Which rows come out.")]
Memory = Annotated[str, typer.Option("--memory", help="All that the join may use: 64MB, 1GiB, or a share of R as 10%.")]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", help="Columns of R to give out, with commas between: all but those of --on unless given."
    ),
]


def column_names(columns: str | None) -> list[str] | None:
    """The names of ``--columns``."""
    return None if columns is None else [name.strip() for name in columns.split(",")]


def column_pairs(on: list[str] | None, sides: tuple[str, str] = ("S", "R")) -> dict[str, str] | None:
    """The pairs (stream column -> relation column) of ``--on``, None if there are none; ``sides`` names the two."""
    pairs: dict[str, str] = {}
    for item in on or []:
        stream, equals, relation = item.partition("=")
        if not stream or (equals and not relation):
            raise typer.BadParameter(f"--on is {item!r}; give COLUMN, or {sides[0]}_COLUMN={sides[1]}_COLUMN.")
        if stream in pairs:
            raise typer.BadParameter(f"--on names the stream's column {stream!r} twice.")
        pairs[stream] = relation or stream
    return pairs or None


LEAST_JAVA = 17
_INSTALL_JAVA = (
    "Install it with `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu) or `brew install openjdk@17` (macOS)"
)
SPARK = {"pyspark": "spark", "pandas": "spark"}
DELTA = {"deltalake": "delta"}
PLOT = {"matplotlib": "plot"}


def require_packages(what: str, packages: Mapping[str, str] = SPARK) -> None:
    """Refuse to go on with ``what`` without the packages it needs; each comes with an extra of ours."""
    if missing := [name for name in packages if find_spec(name) is None]:
        extras = ",".join(dict.fromkeys(packages.values()))
        raise SemistreamError(
            f"{what} needs {' and '.join(missing)}. Install with `pip install 'semistream[{extras}]'`."
        )


def require_java() -> None:
    """Refuse to start without the Java that Spark would use: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    where = f"in JAVA_HOME ({home})" if home else "on the PATH"
    if java is None:
        raise SemistreamError(f"Spark needs Java {LEAST_JAVA} or newer, and there is none {where}. {_INSTALL_JAVA}.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise SemistreamError(f"{java} does not start: {said.strip() or 'it says nothing'}. {_INSTALL_JAVA}.")
    if int(found[1]) < LEAST_JAVA:
        raise SemistreamError(
            f"{java} is Java {found[1]}; Spark needs {LEAST_JAVA} or newer. {_INSTALL_JAVA}, "
            "and set JAVA_HOME to where it is."
        )
