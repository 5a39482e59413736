"""Rows for a person to look at: the first of each batch, on standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.etl.ledger_entries import WrittenFile
from semistream.etl.table_writer import TableLayout
from semistream.etl.tables import Table


class ConsoleTable(Table):
    """Shows the first rows of each batch. A batch that is committed again, after a crash, is shown again."""

    @property
    def layout(self) -> TableLayout:
        """Files lie aside until they were shown."""
        return TableLayout(str(self.path), self.schema)

    def open(self) -> None:
        """Make the folder that rows wait in."""
        self.path.mkdir(parents=True, exist_ok=True)

    def commit(self, batch: int, files: Sequence[WrittenFile]) -> None:
        """Show the first rows of a batch, unless they were."""
        there = [file for file in files if (self.path / file.path).exists()]
        if not there:
            return
        rows = sum(file.rows for file in there)
        tables = [pq.read_table(self.path / file.path).slice(0, self.spec.rows) for file in there]
        shown = pa.concat_tables(tables).slice(0, self.spec.rows)
        sys.stdout.write(f"batch {batch}: {rows:,} rows\n{as_text(shown)}\n")
        sys.stdout.flush()
        for file in there:
            (self.path / file.path).unlink()

    def vacuum(self, in_use: set[str]) -> list[Path]:
        """Remove files that are not shown any more."""
        removed = [path for path in self.path.glob("*.parquet") if path.name not in in_use]
        for path in removed:
            path.unlink()
        return removed


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
