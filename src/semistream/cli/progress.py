"""Progress bars on stderr for long work; silent if stderr is not a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
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
    """Rows done so far, from the work's own count if it has one, and the mean rate."""

    def render(self, task: Task) -> Text:
        count: Callable[[], int] | None = task.fields.get("count")
        rows = int(task.completed) if count is None else count()
        rate = f"  {rows / task.elapsed:,.0f} rows/s" if task.elapsed and not task.finished else ""
        return Text(f"{rows:,} rows{rate}")


def bars(how_far: ProgressColumn | None = None) -> Progress:
    """Create progress bars that vanish when the work is done, making room for the report.

    The column ``how_far`` shows the progress; by default, rows done.
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
    """Yield a callback for `Relation.build`: one bar for reading, and one for writing once the sort emits rows."""
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
    """Yield a callback for `calibrate`, with one bar for each step that has begun."""
    with bars(TaskProgressColumn()) as progress:
        tasks: dict[str, TaskID] = {}

        def report(step: str, share: float) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(f"measure {step}", total=1.0)
            progress.update(tasks[step], completed=share)

        yield report


@contextmanager
def runs(description: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar over ``total`` runs and yield a callback that counts one more as done."""
    with bars(TaskProgressColumn()) as progress:
        task = progress.add_task(description, total=total)
        yield lambda: progress.advance(task)


@contextmanager
def counted(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar, and yield a callback for the numbers of things done and in all."""
    with bars(MofNCompleteColumn()) as progress:
        task = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def counting(description: str, count: Callable[[], int]) -> Iterator[None]:
    """Show a line that calls ``count`` for the rows done whenever it is redrawn."""
    with bars() as progress:
        progress.add_task(description, total=None, count=count)
        yield
