"""``semistream window``: two files as streams, joined in a window that the memory cannot hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from semistream.cli.join_options import column_pairs
from semistream.cli.options import AsJson
from semistream.cli.plot_option import require_drawable
from semistream.cli.prerequisites import require_packages
from semistream.cli.window_options import (
    AllocationName,
    Frequencies,
    PolicyName,
    memory_size,
    time_columns,
    window_lengths,
)
from semistream.errors import InvalidArgument

_SOLVER = {"ortools": "windows"}


def window(
    left: Annotated[
        Path,
        typer.Option(metavar="FILE", help="One stream: a Parquet, Arrow IPC or CSV file, or a folder of one kind."),
    ],
    right: Annotated[Path, typer.Option(metavar="FILE", help="The other one.")],
    on: Annotated[
        list[str], typer.Option("--on", help="Column to join by, or LEFT_COLUMN=RIGHT_COLUMN; repeat it for several.")
    ],
    length: Annotated[
        str,
        typer.Option(
            "--window",
            help="How long a row can join: 400 (instants), '400 rows', '5 minutes', or unbounded; also LEFT,RIGHT.",
        ),
    ],
    memory: Annotated[str, typer.Option(help="What may be kept: 200 (rows of both streams), or bytes as 64MB.")],
    policy: Annotated[PolicyName, typer.Option(help="Who leaves when the memory is full.")] = PolicyName.prob,
    allocation: Annotated[
        AllocationName, typer.Option(help="Half of the memory for each stream, or as worth decides.")
    ] = AllocationName.fixed,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="When rows arrive, also LEFT_COLUMN=RIGHT_COLUMN. Else by row number: one of each at a time.",
        ),
    ] = None,
    probabilities: Annotated[
        Frequencies,
        typer.Option(help="How often keys come: learnt on the way, or known of the whole streams, as in the paper."),
    ] = Frequencies.learnt,
    optimal: Annotated[
        bool, typer.Option("--optimal", help="Compute the most that any policy could give in this memory.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Draw results against memory, for all policies: several runs of each."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Result file, .parquet, .arrow or .csv, if results are wanted.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Join two streams in a window with less memory than it needs, and say how good that is."""
    pairs = column_pairs(on, ("LEFT", "RIGHT")) or {}
    times, span, kept = time_columns(time), window_lengths(length), memory_size(memory)
    if plot is not None:
        require_drawable(plot)
    if optimal:
        if isinstance(kept, str):
            raise InvalidArgument(f"--memory is {memory!r}; the optimum counts tuples, so give --memory as a number.")
        require_packages("--optimal", _SOLVER)
    from semistream.cli.output import show
    from semistream.cli.progress import counting, runs
    from semistream.cli.result_file import write_results
    from semistream.cli.window_report import Windowed
    from semistream.cli.window_streams import WindowStreams
    from semistream.cli.window_trial import WindowTrial

    streams = WindowStreams.read(left, right, on=pairs, time=times, window=span)
    trial = WindowTrial(streams, span, allocation.value, learnt=probabilities is Frequencies.learnt)
    joined = streams if out is not None else streams.narrowed()
    join = trial.operator(policy.value, kept, joined)
    trial.load_kernels(policy.value, kept)
    out_bytes = None
    start = perf_counter()
    with counting("window join", lambda: join.stats.left.rows_in + join.stats.right.rows_in):
        if out is not None:
            out_bytes = write_results(joined.through(join), join.schema, out)
        else:
            for _ in joined.through(join):
                pass
    seconds = perf_counter() - start
    optimum = optimum_seconds = None
    if optimal and isinstance(kept, int):
        with runs("optimum", 1):
            optimum, optimum_seconds = trial.optimum(kept)
    curve = []
    if plot is not None:
        memories = trial.memories(kept)
        with runs("results against memory", len(memories) * (len(trial.policies()) + optimal)) as done:
            curve = trial.curve(memories, optimal=optimal, done=done)
    report = Windowed(
        left=str(left),
        right=str(right),
        window=length,
        memory=kept,
        policy=policy.value,
        allocation=allocation.value,
        probabilities=probabilities.value,
        results=join.stats.results,
        optimum=optimum,
        exact=trial.exact,
        exact_memory=trial.exact_memory,
        stats=join.stats.as_dict(),
        seconds=round(seconds, 3),
        tuples_per_s=round(streams.rows / seconds),
        optimum_seconds=None if optimum_seconds is None else round(optimum_seconds, 3),
        curve=curve,
        out=None if out is None else str(out),
        out_bytes=out_bytes,
        plot=None,
        notes=[f"{path} has rows out of the order of time: each arrives at its time" for path in streams.unordered],
    )
    if plot is not None:
        from semistream.cli.window_plot import save_plot

        save_plot(plot, report)
        report = replace(report, plot=str(plot))
    show(report, as_json=as_json)
