"""Rows that go elsewhere than to a table of files: they wait in a folder until they are handed over."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from semistream.etl.faults import reached
from semistream.etl.ledger_entries import WrittenFile
from semistream.etl.table_writer import TableLayout
from semistream.etl.tables import Table


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
