"""What ``join`` and ``explain`` both ask about a join, and how it is read."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


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
