"""``semistream explain``: what a join, or each join of a pipeline, would choose and what to expect, before it runs."""

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
_MOST_ROWS = 2_000_000  # of a sample: enough to tell how hot the keys are


def explain(
    relation: Annotated[
        Path,
        typer.Argument(
            metavar="R",
            help="The relation's folder; or FILE.yaml, a pipeline, for all of its joins.",
            show_default=False,
        ),
    ],
    on: Annotated[
        list[str] | None,
        typer.Option("--on", help="Column to join by, or S_COLUMN=R_COLUMN; repeat it for several. Else R's key."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Stream tuples that come in a second: is that kept up with?")
    ] = None,
    zipf: Annotated[
        float | None, typer.Option(help="How skewed the stream's keys are: 0, all alike, unless given.")
    ] = None,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Rows of the stream, in the order in which they came: Parquet, Arrow IPC or CSV."
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            help="All that the join may use: 64MB, 1GiB, or a share of R as 10%. Else 10%, or what the pipeline says.",
        ),
    ] = None,
    columns: Columns = None,
    how: HowOption = How.inner,
    batch_rows: Annotated[
        float | None, typer.Option(help="Tuples after which none may wait, as at the end of a micro-batch.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Draw rate and hit rate against memory: would more of it help?"),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Of a pipeline: tasks that run at a time. Else the cores of this machine.")
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The machine of a paper (mesh) instead of this one. Not of a pipeline."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a join would choose, how fast it would be, and what would change that; or each join of a pipeline."""
    if relation.suffix in _PIPELINES:
        given = {"--on": on, "--sample": sample, "--columns": columns, "--plot": plot, "--how": how.value != "inner"}
        given["--machine"] = machine
        if wrong := [name for name, value in given.items() if value]:
            raise typer.BadParameter(
                f"{relation} is a pipeline, whose joins say that themselves: leave {wrong[0]} out."
            )
        _explain_pipeline(relation, slots, rate, zipf, batch_rows, memory, as_json)
        return
    if slots is not None:
        raise typer.BadParameter("--slots is for pipelines; a join in one process has one.")
    if zipf is not None and sample is not None:
        raise typer.BadParameter("--zipf and --sample both say how often keys come; give one of them.")
    if plot is not None:
        require_drawable(plot)
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
        memory="10%" if memory is None else memory,
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
    """The first rows of a stream; that there are more is said."""
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
            messages().print(f"{path} is long: its first {_MOST_ROWS:,} rows are taken for a sample.", soft_wrap=True)
            break
    if not rows:
        raise InvalidArgument(f"the sample {path} has no rows; give some of the stream's, in the order they came in.")
    return pa.Table.from_batches(batches, reader.schema).slice(0, _MOST_ROWS)
