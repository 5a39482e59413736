"""Progress on stderr while long work is done; nothing when that is not a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from semistream.cli.output import messages


class _Rows(ProgressColumn):
    """Rows so far, as the work itself counts them, and the mean rate."""

    def render(self, task: Task) -> Text:
        count: Callable[[], int] | None = task.fields.get("count")
        rows = int(task.completed) if count is None else count()
        rate = f"  {rows / task.elapsed:,.0f} rows/s" if task.elapsed and not task.finished else ""
        return Text(f"{rows:,} rows{rate}")


def bars(how_far: ProgressColumn | None = None) -> Progress:
    """Bars that vanish when the work is done: the report takes their place. They say ``how_far`` it is, or how many
    rows are done.
    """
    console = messages()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        how_far or _Rows(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def build_progress() -> Iterator[Callable[[str, int], None]]:
    """A callback for `Relation.build`: a bar for reading, and one for writing when rows come out of the sort."""
    with bars() as progress:
        reading = progress.add_task("read and sort", total=None)
        writing = progress.add_task("write pages", total=None, visible=False)
        rows_read = 0

        def report(phase: str, rows: int) -> None:
            nonlocal rows_read
            if phase == "read":
                rows_read = rows
                progress.update(reading, completed=rows)
                return
            if not progress.tasks[reading].finished:
                progress.update(reading, total=rows_read)
                progress.update(writing, total=rows_read, visible=True)
            progress.update(writing, completed=rows)

        yield report


@contextmanager
def step_progress() -> Iterator[Callable[[str, float], None]]:
    """A callback for `calibrate`: a bar for each step, from when it begins."""
    with bars(TaskProgressColumn()) as progress:
        tasks: dict[str, TaskID] = {}

        def report(step: str, share: float) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(f"measure {step}", total=1.0)
            progress.update(tasks[step], completed=share)

        yield report


@contextmanager
def runs(description: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar over ``total`` runs; calling what it gives says that one more is done."""
    with bars(TaskProgressColumn()) as progress:
        task = progress.add_task(description, total=total)
        yield lambda: progress.advance(task)


@contextmanager
def counting(description: str, count: Callable[[], int]) -> Iterator[None]:
    """A line that asks ``count`` for the rows done whenever it is drawn."""
    with bars() as progress:
        progress.add_task(description, total=None, count=count)
        yield
