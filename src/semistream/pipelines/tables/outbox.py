"""Rows that go elsewhere than to a table of files: they wait in a folder until they are handed over.

Rows for a person to look at: the first of each batch, on standard output.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.pipelines.ledger.entries import WrittenFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.tables.table import Table
from semistream.pipelines.tables.writer import TableLayout


@dataclass(frozen=True)
class OutboxFile:
    """A file of a batch, and the number within the batch of its first row."""

    path: Path
    rows: int
    first_row: int


class OutboxTable(Table):
    """Hands over the rows of each batch at least once: those of a batch that is killed on its way come again.

    A row has the same number in its batch each time. A file is removed when all rows of its batch were handed over.
    """

    @property
    def layout(self) -> TableLayout:
        """Files lie aside until they were handed over."""
        return TableLayout(str(self.path), self.schema)

    def open(self) -> None:
        """Make the folder that rows wait in."""
        self.path.mkdir(parents=True, exist_ok=True)

    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Hand over the rows of a batch, unless they were."""
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
        """Give the rows of these files to where they go, and return when they are there."""

    def vacuum(self, in_use: set[str]) -> list[Path]:
        """Remove files that will not be handed over any more."""
        removed = [path for path in self.path.glob("*.parquet") if path.name not in in_use]
        for path in removed:
            path.unlink()
        return removed


class ConsoleTable(OutboxTable):
    """Shows the first rows of each batch. A batch that is committed again, after a crash, is shown again."""

    def hand_over(self, batch: int, files: Sequence[OutboxFile]) -> None:
        """Show the first rows of a batch."""
        rows = sum(file.rows for file in files)
        tables = [pq.read_table(file.path).slice(0, self.spec.rows) for file in files]
        shown = pa.concat_tables(tables).slice(0, self.spec.rows)
        sys.stdout.write(f"batch {batch}: {rows:,} rows\n{as_text(shown)}\n")
        sys.stdout.flush()


def as_text(table: pa.Table) -> str:
    """A table in columns.

    >>> print(as_text(pa.table({"id": [1, 20], "name": ["tea", None]})))
    id  name
    1   tea
    20
    """
    cells = [["" if value is None else str(value) for value in column.to_pylist()] for column in table.columns]
    columns = [[name, *values] for name, values in zip(table.column_names, cells, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)
