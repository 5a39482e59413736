"""Options shared by several commands, and checks for the packages and the Java that some commands need.

The checks run before any work starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from semistream.errors import InvalidArgument, SemistreamError
from semistream.joins.condition.kinds import join_kind

AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON, and nothing else on stdout.")]


class How(StrEnum):
    """Kinds of join that `semistream.join` takes."""

    inner = "inner"
    left = "left"
    semi = "semi"
    anti = "anti"


def _kind(how: str) -> How:
    try:
        return How(join_kind(how))
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from error


OPERATORS = ["auto", "engine", "mesh", "adaptive_mesh", "cmesh", "hybrid", "index", "sweep", "nested_loop", "resident"]
"""Names of operators, listed here because importing the operators takes a while."""


def _operator(name: str) -> str:
    if name not in OPERATORS:
        near = get_close_matches(name, OPERATORS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SemistreamError(f"--operator is {name!r}; give one of {', '.join(OPERATORS)}.{hint}")
    return name


OperatorOption = Annotated[
    str,
    typer.Option(
        "--operator",
        metavar="NAME",
        parser=_operator,
        help=f"Join operator: {', '.join(OPERATORS)} (default: auto, which chooses one).",
        show_default=False,
    ),
]
HowOption = Annotated[
    How,
    typer.Option(
        "--how",
        metavar="|".join(How),
        parser=_kind,
        help="Kind of join, also by Spark's name of it, such as left_outer (default: inner).",
        show_default=False,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="Memory for the whole join: 64MB, 1GiB, or a share of R such as 10% (default: 10% of R, but at least 1MB "
        "and what the join needs).",
        show_default=False,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B=NAME,...",
        help="Columns of R in the result, separated by commas; B=NAME gives column B another name there (default: all "
        "but those of --on).",
        show_default=False,
    ),
]


def column_names(columns: str | None) -> list[str] | dict[str, str] | None:
    """Split the names given to ``--columns``; return a mapping to the names in the result if one is renamed."""
    if columns is None:
        return None
    parts = [[part.strip() for part in item.partition("=")] for item in columns.split(",")]
    names = [name for name, _, _ in parts]
    if all(not equals for _, equals, _ in parts):
        return names
    for name, equals, other in parts:
        if not name or (equals and not other):
            raise typer.BadParameter(f"--columns has {name + equals + other!r}; give COLUMN or COLUMN=NAME.")
        if names.count(name) > 1:
            raise typer.BadParameter(f"--columns names R's column {name!r} twice.")
    return {name: other or name for name, _, other in parts}


def column_pairs(on: list[str] | None, sides: tuple[str, str] = ("S", "R")) -> dict[str, str] | None:
    """Parse ``--on`` into pairs (stream column -> relation column), or None; errors name the two ``sides``."""
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
    """Raise an error if a package that ``what`` needs is missing, naming our extra that installs it.

    ``packages`` maps each package to its extra.
    """
    if missing := [name for name in packages if find_spec(name) is None]:
        extras = ",".join(dict.fromkeys(packages.values()))
        raise SemistreamError(
            f"{what} needs {' and '.join(missing)}. Install with `pip install 'semistream[{extras}]'`."
        )


def require_java() -> None:
    """Raise an error if the Java that Spark would use (in JAVA_HOME, else on the PATH) is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    where = f"in JAVA_HOME ({home})" if home else "on the PATH"
    if java is None:
        raise SemistreamError(f"Spark needs Java {LEAST_JAVA} or newer, but there is none {where}. {_INSTALL_JAVA}.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise SemistreamError(f"{java} does not start: {said.strip() or 'it prints nothing'}. {_INSTALL_JAVA}.")
    if int(found[1]) < LEAST_JAVA:
        raise SemistreamError(
            f"{java} is Java {found[1]}; Spark needs {LEAST_JAVA} or newer. {_INSTALL_JAVA}, "
            "and set JAVA_HOME to its folder."
        )


_NAMES = (
    *("on", "where", "how", "operator", "memory", "columns", "suffix"),
    *("key", "page_bytes", "fill_factor", "overwrite"),
    *("rate", "zipf", "batch_rows", "machine", "sample"),
    *("window", "time", "policy", "allocation"),
)
_NAME = "|".join(_NAMES)
_RULES: tuple[tuple[str, str], ...] = (
    (r" or `Relation\.build\([^`]*\)`", ""),  # beside the command that does the same
    (r"\. Write anything else as a pyarrow\.compute expression", ""),
    (rf"\b({_NAME})=(True|\.\.\.)", r"--\1"),
    (rf"\b({_NAME})='([^']*)'", r"--\1 \2"),
    (rf"\b({_NAME})=", r"--\1 "),
    (rf"^({_NAME}) (is|names|maps|has|pairs|cannot)\b", r"--\1 \2"),
    (r"\b([Rr]aise) memory\b", r"\1 --memory"),
    (r"\bneither on nor where\b", "neither --on nor --where"),
    (r"\((on|where)\)", r"(--\1)"),
    (r"\bgive another suffix or fewer columns\b", "give another --suffix or fewer --columns"),
)


def with_option_names(message: str) -> str:
    """Return an error's text with the options of a command in place of arguments.

    >>> with_option_names("fill_factor is 2.0; give a number between 0.1 and 1.0.")
    '--fill-factor is 2.0; give a number between 0.1 and 1.0.'
    >>> with_option_names("it needs at least 5 bytes. Raise memory to that, or use MeshJoin (operator='mesh').")
    'it needs at least 5 bytes. Raise --memory to that, or use MeshJoin (--operator mesh).'
    """
    for pattern, replacement in _RULES:
        message = re.sub(pattern, replacement, message)
    return re.sub(rf"--({_NAME})\b", lambda found: found[0].replace("_", "-"), message)
