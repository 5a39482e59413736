"""Rows for a person to look at: the first of each batch, on standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.etl.outbox_table import OutboxFile, OutboxTable


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
