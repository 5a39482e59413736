"""The ``semistream explain`` command: predict a join, or every join of a pipeline, before it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.options import AsJson, Columns, How, HowOption, column_names, column_pairs
from semistream.cli.plots import require_drawable
from semistream.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

_PIPELINES = (".yaml", ".yml")
_MOST_ROWS = 2_000_000  # rows of a sample to read: enough to tell how hot the keys are


def explain(
    relation: Annotated[
        Path,
        typer.Argument(
            metavar="R",
            help="Relation folder, or FILE.yaml for every join of a pipeline.",
            show_default=False,
        ),
    ],
    on: Annotated[
        list[str] | None,
        typer.Option("--on", help="Column to join on, or S_COLUMN=R_COLUMN; repeat for several (default: R's key)."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Stream rate to check, in tuples per second.")] = None,
    zipf: Annotated[
        float | None, typer.Option(help="Zipf exponent of the stream's keys (default: 0, uniform).")
    ] = None,
    sample: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Sample of the stream, in arrival order: a Parquet, Arrow IPC or CSV file."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            help="Memory for the join: 64MB, 1GiB, or a share of R (default: 10% of R, but at least 1MB and what the "
            "join needs; for a pipeline, its own memory).",
        ),
    ] = None,
    columns: Columns = None,
    how: HowOption = How.inner,
    batch_rows: Annotated[
        float | None, typer.Option(help="Tuples per micro-batch; none may wait beyond its end.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Plot rate and hit rate against memory."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Concurrent tasks of a pipeline (default: the cores of this machine).")
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Machine of a paper (mesh) instead of this one; not for pipelines."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the operator and rate of a join, or of every join of a pipeline, and what would change the choice."""
    if relation.suffix in _PIPELINES:
        given = {"--on": on, "--sample": sample, "--columns": columns, "--plot": plot, "--how": how.value != "inner"}
        given["--machine"] = machine
        if wrong := [name for name, value in given.items() if value]:
            raise typer.BadParameter(
                f"{relation} is a pipeline, whose file sets this for its joins; leave {wrong[0]} out."
            )
        _explain_pipeline(relation, slots, rate, zipf, batch_rows, memory, as_json)
        return
    if slots is not None:
        raise typer.BadParameter("--slots is for pipelines; a single join runs in one process. Leave it out.")
    if zipf is not None and sample is not None:
        raise typer.BadParameter("--zipf and --sample both set the key frequencies; give only one of them.")
    if plot is not None:
        plot = require_drawable(plot)
    pairs = column_pairs(on)
    from semistream.cli.explain.text import Explained
    from semistream.cli.output import show
    from semistream.tuning.explain import explain as explain_join
    from semistream.tuning.papers import paper_machine

    explanation = explain_join(
        relation,
        sample=None if sample is None else _read(sample),
        on=pairs,
        how=how.value,
        memory=memory,
        rate=rate,
        zipf=zipf,
        batch_rows=batch_rows,
        columns=column_names(columns),
        machine=None if machine is None else paper_machine(machine),
    )
    if plot is not None:
        from semistream.cli.explain.plot import save_plot

        save_plot(plot, explanation, title=str(relation))
    show(Explained(str(relation), explanation, None if plot is None else str(plot)), as_json=as_json)


def _explain_pipeline(
    file: Path,
    slots: int | None,
    rate: float | None,
    zipf: float | None,
    batch_rows: float | None,
    memory: str | None,
    as_json: bool,
) -> None:
    from semistream.cli.options import require_packages

    require_packages("a pipeline")
    from semistream.cli.explain.pipeline_text import ExplainedPipeline
    from semistream.cli.output import show
    from semistream.pipelines.spec.yaml_file import make_spec, read_spec
    from semistream.spark.planning.explain import explain_pipeline

    spec = read_spec(file)
    if memory is not None:
        spec = make_spec({**spec.model_dump(by_alias=True, exclude_unset=True), "memory": memory})
    explanation = explain_pipeline(
        spec,
        slots=slots or os.cpu_count() or 1,
        rate=rate,
        zipf=zipf or 0.0,
        **({} if batch_rows is None else {"batch_rows": int(batch_rows)}),
    )
    show(ExplainedPipeline(str(file), explanation), as_json=as_json)


def _read(path: Path) -> pa.Table:
    """Read a sample, up to a maximum number of rows; print a message if there are more."""
    import pyarrow as pa

    from semistream.cli.output import messages
    from semistream.relation.write.sources import open_source

    reader = open_source(path)
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows > _MOST_ROWS:
            messages().print(f"{path} is long: using its first {_MOST_ROWS:,} rows as the sample.", soft_wrap=True)
            break
    if not rows:
        raise InvalidArgument(f"the sample {path} has no rows; give rows of the stream, in arrival order.")
    return pa.Table.from_batches(batches, reader.schema).slice(0, _MOST_ROWS)
