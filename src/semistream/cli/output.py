"""Printing: reports as text or JSON on stdout, messages and progress on stderr."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from semistream.budget import format_bytes
from semistream.errors import hidden, hidden_in

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_BAR_WIDTH = 24


class _Console(Console):
    """Console that shows the names of variables in place of their values."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Render text; rich does so before it lays the text out, when a value is still in one piece."""
        return super().render_str(hidden(text), **options)


class Report(ABC):
    """Result of a command: a dataclass that `show` prints as text or JSON."""

    @abstractmethod
    def text(self) -> RenderableType:
        """Return the report as text."""

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return asdict(cast("DataclassInstance", self))


def show(report: Report, *, as_json: bool, on_stderr: bool = False) -> None:
    """Print a report on stdout, or on stderr if stdout has results, as one JSON object or as text."""
    file = sys.stderr if on_stderr else sys.stdout
    if as_json:
        print(json.dumps(hidden_in(report.plain()), indent=2), file=file)
    else:
        # Table cells fold at the console's width; a pipe has no width, so give it a generous one.
        width = None if file.isatty() else 160
        console = _Console(file=file, width=width, highlight=False, markup=False, emoji=False)
        console.print(report.text(), soft_wrap=True)


@cache
def messages() -> Console:
    """Return the console for progress and messages: stderr, since stdout is for reports.

    There is one, so that a message printed while a bar is shown goes above the bar and not into it.
    """
    return _Console(stderr=True, highlight=False, markup=False, emoji=False)


def facts(*rows: tuple[str, object], title: str | None = None) -> Table:
    """Lay out names and values as a two-column table."""
    pairs = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    pairs.add_column(style="cyan", no_wrap=True)
    pairs.add_column(overflow="fold")
    for name, value in rows:
        pairs.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    return pairs


def size(nbytes: int) -> str:
    """Format a number of bytes both rounded and exactly."""
    return f"{format_bytes(nbytes)} ({nbytes:,} bytes)" if nbytes >= 1000 else format_bytes(nbytes)


def table(*headers: str) -> Table:
    """Create a table of right-aligned columns with room for a bar after them."""
    columns = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        columns.add_column(header, justify="right", no_wrap=True)
    columns.add_column("", width=_BAR_WIDTH)
    return columns


def bar(value: float, most: float) -> Bar:
    """Draw a bar whose length is the ratio of ``value`` to ``most``."""
    return Bar(size=most or 1, begin=0, end=value, width=_BAR_WIDTH)
