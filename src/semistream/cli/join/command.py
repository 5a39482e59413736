"""``semistream join``: join a file or folder of stream rows with a relation, into one file."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from semistream.cli.options import AsJson, Columns, How, HowOption, Memory, column_names, column_pairs


def join(
    stream: Annotated[
        Path,
        typer.Argument(
            metavar="S", help="Stream: a Parquet, Arrow IPC or CSV file, or a folder of files in one format."
        ),
    ],
    relation: Annotated[
        Path,
        typer.Argument(metavar="R", help="Relation folder, or plain Parquet: a file, a folder or a Delta table."),
    ],
    out: Annotated[
        Path, typer.Option(help="Result file (.parquet, .arrow or .csv), replaced when the join completes.")
    ],
    on: Annotated[
        list[str] | None, typer.Option("--on", help="Column to join on, or S_COLUMN=R_COLUMN; repeat for several.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help='Further condition, such as "s.at BETWEEN r.since AND r.until"; repeat for several.'),
    ] = None,
    how: HowOption = How.inner,
    operator: Annotated[str, typer.Option(help="Join operator by name, or auto to choose one.")] = "auto",
    memory: Memory = None,
    columns: Columns = None,
    suffix: Annotated[str, typer.Option(help="Suffix for columns of R whose names S also has.")] = "_right",
    as_json: AsJson = False,
) -> None:
    """Join a stream with a relation, exactly and within a memory budget."""
    pairs = column_pairs(on)
    from semistream.cli.output import show
    from semistream.cli.progress import counting
    from semistream.cli.reports import Joined
    from semistream.cli.result_file import write_results
    from semistream.joined_stream import join as join_stream
    from semistream.relation import open_relation
    from semistream.relation.write.sources import open_source

    start = perf_counter()
    opened = open_relation(relation)
    joined = join_stream(
        open_source(stream),  # plain types, which all formats of the result have
        opened,
        on=pairs,
        where=where,
        how=how.value,
        operator=operator,
        memory=memory,
        columns=column_names(columns),
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
