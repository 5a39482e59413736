"""WaitingWriter: rows that go on later, in files by the link that they wait before.

Which of the rows that wait go on in a batch: those that may have a partner now, and those that waited enough.

When rows that were deferred go on: when enough of them share a pass over R, or their deadline comes near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from semistream.pipelines.ledger.entries import WaitingFile
from semistream.pipelines.steps.chain import Stopped
from semistream.pipelines.tables.writer import TableLayout, TableWriter

if TYPE_CHECKING:
    from semistream.pipelines.task.batch_task import TaskPlan

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


_MOST_FILES = 256  # that wait; with more they are taken to be written together


@dataclass(frozen=True)
class WaitingPolicy:
    """``versions`` are those of the relation of each link now, ``retry_s`` how long rows wait for a partner in it.

    Rows that were deferred go on when a batch drains.
    """

    versions: Sequence[int]
    retry_s: Sequence[float]

    def taken(self, waiting: Sequence[WaitingFile], now: float, *, drains: bool) -> list[WaitingFile]:
        """The files that go on: all of an origin, as they may have results of the same rows.

        >>> policy = WaitingPolicy(versions=[3], retry_s=[60.0])
        >>> files = [WaitingFile(f"{n}.parquet", 1, 0, n, since=100.0, version=n) for n in (2, 3)]
        >>> [file.path for file in policy.taken(files, 120.0, drains=True)]
        ['2.parquet']
        """
        if len(waiting) > _MOST_FILES and drains:
            return list(waiting)
        origins = {file.origin for file in waiting if self._goes_on(file, now, drains)}
        return [file for file in waiting if file.origin in origins]

    def _goes_on(self, file: WaitingFile, now: float, drains: bool) -> bool:
        if file.version is None:
            return drains
        return self.versions[file.link] != file.version or file.since + self.retry_s[file.link] <= now


_ROW_S = 1e-6  # of a pass, for each row that shares it: less than the rest of a row's way takes
_HASTE = 0.1  # of the goal, that a batch is early by at least


@dataclass(frozen=True)
class Deferral:
    """Rows wait ``goal_s`` at most; a pass over R takes ``pass_s``, and batches come every ``every_s`` or so."""

    goal_s: float
    pass_s: float
    every_s: float

    @property
    def enough_rows(self) -> float:
        """So many rows share a pass that it costs each of them next to nothing."""
        return self.pass_s / _ROW_S

    def is_due(self, waiting: Sequence[WaitingFile], now: float, last_drain_s: float) -> bool:
        """Whether rows that were deferred have to go on now, if the last batch that took some has taken so long.

        >>> deferral = Deferral(goal_s=30, pass_s=0.5, every_s=1)
        >>> files = [WaitingFile("a", 1000, 0, "a", since=100.0)]
        >>> [deferral.is_due(files, now, last_drain_s=2.0) for now in (110.0, 126.0)]
        [False, True]
        """
        deferred = [file for file in waiting if file.version is None]
        if not deferred:
            return False
        if sum(file.rows for file in deferred) >= self.enough_rows:
            return True
        early_s = max(2 * last_drain_s + self.every_s, _HASTE * self.goal_s)
        return now >= min(file.since for file in deferred) + self.goal_s - early_s
