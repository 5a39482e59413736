"""``semistream join``: join a stream of rows, in files or from standard input, with a relation."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from semistream.cli.options import (
    AsJson,
    Columns,
    How,
    HowOption,
    Memory,
    OperatorOption,
    column_names,
    column_pairs,
)

STANDARD = Path("-")
"""The path that stands for standard input or standard output."""
_LEAST_S = 1e-3  # of a join, if threads have compiled at the same time all the while


class Format(StrEnum):
    """Formats of rows on standard input and output."""

    arrow = "arrow"
    csv = "csv"
    parquet = "parquet"


def join(
    stream: Annotated[
        Path,
        typer.Argument(
            metavar="S",
            help="Stream: a Parquet, Arrow IPC or CSV file, a folder of files in one format, or - for standard input.",
        ),
    ],
    relation: Annotated[
        Path,
        typer.Argument(metavar="R", help="Relation folder, or plain Parquet: a file, a folder or a Delta table."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="Result file (.parquet, .arrow or .csv), replaced when the join completes, or - for standard output; "
            "the report then goes to standard error."
        ),
    ],
    on: Annotated[
        list[str] | None, typer.Option("--on", help="Column to join on, or S_COLUMN=R_COLUMN; repeat for several.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help='Further condition, such as "s.at BETWEEN r.since AND r.until"; repeat for several.'),
    ] = None,
    how: HowOption = How.inner,
    operator: OperatorOption = "auto",
    memory: Memory = None,
    columns: Columns = None,
    suffix: Annotated[str, typer.Option(help="Suffix for columns of R whose names S also has.")] = "_right",
    format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="Format of rows on standard input and output, where S or --out is -. arrow is an Arrow IPC stream. "
            "Rows in Parquet are joined once all of them have arrived.",
        ),
    ] = Format.arrow,
    as_json: AsJson = False,
) -> None:
    """Join a stream with a relation, exactly and within a memory budget."""
    pairs, names = column_pairs(on), column_names(columns)
    from semistream.cli.join.standard_streams import read_stdin, write_stdout
    from semistream.cli.output import show
    from semistream.cli.progress import counting
    from semistream.cli.reports import Joined
    from semistream.cli.result_file import require_writable, write_results
    from semistream.joined_stream import join as join_stream
    from semistream.kernels.compiler.stored_code import compiled_here
    from semistream.relation import open_relation
    from semistream.relation.write.sources import open_source

    if out != STANDARD:
        require_writable(out)
    start, kernels, compiling_s = perf_counter(), compiled_here.kernels, compiled_here.seconds
    opened = open_relation(relation)
    rows = read_stdin(format.value) if stream == STANDARD else stream
    joined = join_stream(
        open_source(rows),  # plain types, which all formats of the result have
        opened,
        on=pairs,
        where=where,
        how=how.value,
        operator=operator,
        memory=memory,
        columns=names,
        suffix=suffix,
    )
    try:
        with counting(f"join {stream.name}", lambda: joined.stats.rows_in):
            if out == STANDARD:
                out_bytes = write_stdout(joined, joined.schema, format.value)
            else:
                out_bytes = write_results(joined, joined.schema, out)
    finally:
        joined.close()
    seconds = perf_counter() - start
    compiling_s = min(compiled_here.seconds - compiling_s, seconds)
    report = Joined(
        stream=str(stream),
        relation=str(relation),
        relation_version=opened.version,
        how=how.value,
        out=str(out),
        out_bytes=out_bytes,
        seconds=round(seconds, 3),
        rows_per_s=round(joined.stats.rows_in / max(seconds - compiling_s, _LEAST_S)),
        compiled_kernels=compiled_here.kernels - kernels,
        compile_seconds=round(compiling_s, 3),
        stats=Joined.counts(joined.stats),
    )
    show(report, as_json=as_json, on_stderr=out == STANDARD)
