"""The ``semistream window`` command: join two files as streams, with less memory than their windows need.

Also parses its options for windows, memory, times and policies.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.options import AsJson, column_pairs, require_packages
from semistream.cli.plots import require_drawable
from semistream.errors import InvalidArgument

if TYPE_CHECKING:
    from semistream.windows import Tuples
    from semistream.windows.streams.lengths import Windows

_ROWS = re.compile(r"(\d+)\s*(?:rows?|tuples?)")
_NUMBER = re.compile(r"-?\d+")
UNBOUNDED = "unbounded"


class PolicyName(StrEnum):
    """Eviction policies of `semistream.windows.POLICIES`."""

    prob = "prob"
    life = "life"
    expected = "expected"
    random = "random"


class AllocationName(StrEnum):
    """Ways in which two streams share the memory of a `semistream.windows.WindowJoin`."""

    fixed = "fixed"
    variable = "variable"


class Frequencies(StrEnum):
    """Sources of the key frequencies: learnt from the stream so far, or counted in the whole streams (WINDOW 5.2)."""

    learnt = "learnt"
    streams = "streams"


def window_lengths(text: str) -> Windows:
    """Parse ``--window`` into windows for `WindowJoin`: one for both streams, or one for each.

    A window is ``400`` instants, ``400 rows``, a duration such as ``5 minutes``, or ``unbounded``.
    """
    left, comma, right = (part.strip().lower() for part in text.partition(","))
    if not comma:
        return _length(left)
    if not left or not right or "," in right:
        raise typer.BadParameter(f"--window is {text!r}; give LENGTH, or LEFT_LENGTH,RIGHT_LENGTH.")
    if UNBOUNDED not in (left, right) and bool(_ROWS.fullmatch(left)) != bool(_ROWS.fullmatch(right)):
        raise InvalidArgument(
            f"--window is {text!r}: rows for one stream, time for the other. The exact result of such a join cannot be "
            "counted. Give both in rows or both in time, or use semistream.windows.WindowJoin, which takes a mix."
        )
    return {"left": _length(left), "right": _length(right)}


def _length(text: str) -> int | str | Tuples | None:
    if text == UNBOUNDED:
        return None
    if _NUMBER.fullmatch(text):
        return int(text)
    if rows := _ROWS.fullmatch(text):
        from semistream.windows import Tuples

        return Tuples(int(rows[1]))
    return text


def memory_size(text: str) -> int | str:
    """Parse ``--memory`` into a number of tuples, or leave bytes such as ``64MB`` to `WindowJoin`."""
    return int(text) if _NUMBER.fullmatch(text.strip()) else text


def time_columns(text: str | None) -> str | dict[str, str] | None:
    """Parse ``--time`` into one column for both streams, or one for each."""
    if text is None:
        return None
    left, equals, right = text.partition("=")
    if not left or (equals and not right):
        raise typer.BadParameter(f"--time is {text!r}; give COLUMN, or LEFT_COLUMN=RIGHT_COLUMN.")
    return {"left": left, "right": right} if equals else left


_SOLVER = {"ortools": "windows"}


def window(
    left: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Left stream: a Parquet, Arrow IPC or CSV file, or a folder of files in one format."
        ),
    ],
    right: Annotated[Path, typer.Option(metavar="FILE", help="Right stream, in any of these formats.")],
    on: Annotated[
        list[str], typer.Option("--on", help="Column to join on, or LEFT_COLUMN=RIGHT_COLUMN; repeat for several.")
    ],
    length: Annotated[
        str,
        typer.Option(
            "--window",
            help="Window length: 400 (instants), '400 rows', '5 minutes' or unbounded; LEFT,RIGHT for one per stream.",
        ),
    ],
    memory: Annotated[str, typer.Option(help="Memory for both streams: 200 (rows), or bytes such as 64MB.")],
    policy: Annotated[PolicyName, typer.Option(help="Eviction policy when the memory is full.")] = PolicyName.prob,
    allocation: Annotated[
        AllocationName,
        typer.Option(help="fixed: half of the memory for each stream; variable: the most valuable rows of either."),
    ] = AllocationName.fixed,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Arrival time column, or LEFT_COLUMN=RIGHT_COLUMN (default: the row number in each stream).",
        ),
    ] = None,
    probabilities: Annotated[
        Frequencies,
        typer.Option(help="Key frequencies: learnt as rows arrive, or counted in the whole streams, as in the paper."),
    ] = Frequencies.learnt,
    optimal: Annotated[
        bool, typer.Option("--optimal", help="Also compute the best result that any policy could reach in this memory.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Plot results against memory for all policies; runs each several times."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the results to this file (.parquet, .arrow or .csv).")] = None,
    as_json: AsJson = False,
) -> None:
    """Join two streams in a window with less memory than it needs, and measure the share of results kept."""
    pairs = column_pairs(on, ("LEFT", "RIGHT")) or {}
    times, span, kept = time_columns(time), window_lengths(length), memory_size(memory)
    if plot is not None:
        plot = require_drawable(plot)
    if optimal:
        if isinstance(kept, str):
            raise InvalidArgument(
                f"--memory is {memory!r}, but --optimal needs a number of tuples; give --memory as a number."
            )
        require_packages("--optimal", _SOLVER)
    from semistream.cli.output import show
    from semistream.cli.progress import counting, runs
    from semistream.cli.result_file import write_results
    from semistream.cli.window.report import Windowed
    from semistream.cli.window.streams import WindowStreams
    from semistream.cli.window.trial import WindowTrial

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
        notes=[f"{path} has rows out of time order; each arrives at its own time" for path in streams.unordered],
    )
    if plot is not None:
        from semistream.cli.window.plot import save_plot

        save_plot(plot, report)
        report = replace(report, plot=str(plot))
    show(report, as_json=as_json)
