"""Outbox tables: rows for a destination without files, such as the console, wait in a folder until handed over."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from semistream.pipelines.ledger.entries import WrittenFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.tables.table import Table as TargetTable
from semistream.pipelines.tables.writer import TableLayout
from semistream.storage.local_files import make_folder

_WIDEST = 1 << 20  # columns of text: lines are never cut or folded


@dataclass(frozen=True)
class OutboxFile:
    """File of a batch, with the number of its first row within the batch."""

    path: Path
    rows: int
    first_row: int


class OutboxTable(TargetTable):
    """Table that hands over the rows of each batch at least once: a batch killed midway is handed over again.

    A row has the same number within its batch each time. The files of a batch are removed once all of its rows have
    been handed over.
    """

    @property
    def layout(self) -> TableLayout:
        """Layout of the files that hold rows until they are handed over."""
        return TableLayout(str(self.path), self.schema)

    def open(self) -> None:
        """Create the folder that rows wait in."""
        make_folder(self.path)

    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Hand over the rows of a batch that have not been handed over yet."""
        waiting: list[OutboxFile] = []
        first = 0
        for file in files:
            if (self.path / file.path).exists():
                waiting.append(OutboxFile(self.path / file.path, file.rows, first))
            first += file.rows
        if not waiting:
            return
        self.hand_over(batch, waiting)
        reached("after hand-over")
        for each in waiting:
            each.path.unlink()

    @abstractmethod
    def hand_over(self, batch: int, files: Sequence[OutboxFile]) -> None:
        """Deliver the rows of these files, and return once they have arrived."""

    def vacuum(self, in_use: set[str]) -> list[Path]:
        """Remove files that will never be handed over: all but those ``in_use``."""
        removed = [path for path in self.path.glob("*.parquet") if path.name not in in_use]
        for path in removed:
            path.unlink()
        return removed


class ConsoleTable(OutboxTable):
    """Table that prints the first rows of each batch. A batch committed again after a crash is printed again."""

    def hand_over(self, batch: int, files: Sequence[OutboxFile]) -> None:
        """Print the first rows of a batch to standard output."""
        rows = sum(file.rows for file in files)
        tables = [pq.read_table(file.path).slice(0, self.spec.rows) for file in files]
        shown = pa.concat_tables(tables).slice(0, self.spec.rows)
        sys.stdout.write(f"batch {batch}: {rows:,} rows\n{as_text(shown)}\n")
        sys.stdout.flush()


def as_text(table: pa.Table) -> str:
    """Format a table as text in aligned columns.

    >>> print(as_text(pa.table({"id": [1, 20], "name": ["tea", None]})))
    id  name
    1   tea
    20
    """
    lines = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in table.column_names:
        lines.add_column(Text(name), no_wrap=True)
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        lines.add_row(*(Text("" if value is None else str(value)) for value in row))
    console = Console(file=StringIO(), width=_WIDEST, color_system=None)
    with console.capture() as captured:
        console.print(lines)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
