"""WaitingWriter: rows that go on later, in files by the link that they wait before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from semistream.etl.chain import Stopped
from semistream.etl.ledger_entries import WaitingFile
from semistream.etl.table_writer import TableLayout, TableWriter

if TYPE_CHECKING:
    from semistream.etl.batch_task import TaskPlan

_Kind = tuple[str, int]  # an outcome and a link


class WaitingWriter:
    """Writes the rows of a task that wait or are stalled; all of its files are of one origin."""

    def __init__(self, plan: TaskPlan) -> None:
        self._plan = plan
        self._writers: dict[_Kind, TableWriter] = {}
        self._since: dict[_Kind, int] = {}

    def write(self, rows: pa.RecordBatch, stopped: Stopped) -> None:
        """Add rows with the columns that enter the link."""
        kind = (stopped.outcome, stopped.link)
        if kind not in self._writers:
            layout = TableLayout(self._plan.rows_folder, self._plan.entering[stopped.link])
            self._writers[kind] = TableWriter(layout, f"{self._plan.prefix}-{stopped.outcome}")
        self._writers[kind].write(rows)
        since = pc.min(rows.column("__since")).as_py()
        self._since[kind] = min(since, self._since.get(kind, since))

    def close(self) -> tuple[list[WaitingFile], list[WaitingFile]]:
        """Complete all files: those of rows that wait, and of rows that are stalled."""
        waiting: list[WaitingFile] = []
        stalled: list[WaitingFile] = []
        origin = ""
        for (outcome, link), writer in self._writers.items():
            version = self._plan.versions[link] if outcome == "waiting" else None
            for file in writer.close():
                origin = origin or file.path
                described = WaitingFile(file.path, file.rows, link, origin, self._since[outcome, link] / 1000, version)
                (stalled if outcome == "stalled" else waiting).append(described)
        return waiting, stalled

    def abandon(self) -> None:
        """Remove all files."""
        for writer in self._writers.values():
            writer.abandon()
