"""``semistream join``: a file or folder of stream rows with a relation, to one file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from semistream.cli.options import AsJson


class How(StrEnum):
    """Kinds of join, as `semistream.join` has them."""

    inner = "inner"
    left = "left"
    semi = "semi"
    anti = "anti"


def join(
    stream: Annotated[
        Path,
        typer.Argument(metavar="S", help="The stream: a Parquet, Arrow IPC or CSV file, or a folder of one kind."),
    ],
    relation: Annotated[
        Path,
        typer.Argument(metavar="R", help="The relation's folder, or plain Parquet: a file, a folder or a Delta table."),
    ],
    out: Annotated[Path, typer.Option(help="Result file, .parquet, .arrow or .csv; replaced when the join is done.")],
    on: Annotated[
        list[str] | None, typer.Option("--on", help="Column to join by, or S_COLUMN=R_COLUMN; repeat it for several.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help='What else must hold, as "s.at BETWEEN r.since AND r.until"; repeat it for several.'),
    ] = None,
    how: Annotated[How, typer.Option(help="Which rows come out.")] = How.inner,
    operator: Annotated[str, typer.Option(help="The join's algorithm: auto, or one by name.")] = "auto",
    memory: Annotated[str, typer.Option(help="All that the join may use: 64MB, 1GiB, or a share of R as 10%.")] = "10%",
    columns: Annotated[
        str | None,
        typer.Option(help="Columns of R to give out, with commas between: all but those of --on unless given."),
    ] = None,
    suffix: Annotated[str, typer.Option(help="Put behind names of R's columns that S has too.")] = "_right",
    as_json: AsJson = False,
) -> None:
    """Join stream rows with a relation, exactly, within a memory budget."""
    pairs = _pairs(on or [])
    from semistream.cli.output import show
    from semistream.cli.progress import counting
    from semistream.cli.reports import Joined
    from semistream.cli.result_file import write_results
    from semistream.joins import join as join_stream
    from semistream.relation import open_relation

    start = perf_counter()
    opened = open_relation(relation)
    joined = join_stream(
        stream,
        opened,
        on=pairs or None,
        where=where,
        how=how.value,
        operator=operator,
        memory=memory,
        columns=None if columns is None else [name.strip() for name in columns.split(",")],
        suffix=suffix,
    )
    try:
        with counting(f"join {stream.name}", lambda: joined.stats.rows_in):
            out_bytes = write_results(joined, joined.schema, out)
    finally:
        joined.close()
    seconds = perf_counter() - start
    report = Joined(
        stream=str(stream),
        relation=str(relation),
        relation_version=opened.version,
        how=how.value,
        out=str(out),
        out_bytes=out_bytes,
        seconds=round(seconds, 3),
        rows_per_s=round(joined.stats.rows_in / seconds),
        stats=Joined.counts(joined.stats),
    )
    show(report, as_json=as_json)


def _pairs(on: list[str]) -> dict[str, str]:
    """The pairs (stream column -> relation column) of ``--on``."""
    pairs: dict[str, str] = {}
    for item in on:
        stream, equals, relation = item.partition("=")
        if not stream or (equals and not relation):
            raise typer.BadParameter(f"--on is {item!r}; give COLUMN, or S_COLUMN=R_COLUMN.")
        if stream in pairs:
            raise typer.BadParameter(f"--on names the stream's column {stream!r} twice.")
        pairs[stream] = relation or stream
    return pairs
