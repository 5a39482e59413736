"""Rows that wait for a later batch: how they are written, and when they go on.

`WaitingWriter` writes them to files. `WaitingPolicy` picks the files that go on in a batch: rows that may have a match
in a new version of R, rows whose retry time is over, and deferred rows when the batch drains. `Deferral` decides when
it drains.
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

_Kind = tuple[str, int]  # outcome and link


class WaitingWriter:
    """Writer of a task's waiting and stalled rows, in files by outcome and link; all files share one origin."""

    def __init__(self, plan: TaskPlan) -> None:
        self._plan = plan
        self._writers: dict[_Kind, TableWriter] = {}
        self._since: dict[_Kind, int] = {}

    def write(self, rows: pa.RecordBatch, stopped: Stopped) -> None:
        """Add rows with the columns of rows that enter the link."""
        kind = (stopped.outcome, stopped.link)
        if kind not in self._writers:
            layout = TableLayout(self._plan.rows_folder, self._plan.entering[stopped.link])
            self._writers[kind] = TableWriter(layout, f"{self._plan.prefix}-{stopped.outcome}")
        self._writers[kind].write(rows)
        since = pc.min(rows.column("__since")).as_py()
        self._since[kind] = min(since, self._since.get(kind, since))

    def close(self) -> tuple[list[WaitingFile], list[WaitingFile]]:
        """Complete all files, and return those of waiting and those of stalled rows."""
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


_MOST_FILES = 256  # waiting files; above this, a batch takes them all and rewrites them as fewer


@dataclass(frozen=True)
class WaitingPolicy:
    """Choice of the waiting files that go on in a batch.

    ``versions`` are the current versions of each link's relation, ``retry_s`` the seconds that rows wait for a match in
    it. Deferred rows go on when a batch drains.
    """

    versions: Sequence[int]
    retry_s: Sequence[float]

    def taken(self, waiting: Sequence[WaitingFile], now: float, *, drains: bool) -> list[WaitingFile]:
        """Return the files that go on: always all of an origin, since they may hold results of the same rows.

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


_ROW_S = 1e-6  # seconds of a pass for each row that shares it: less than the rest of a row's processing
_HASTE = 0.1  # least margin before the deadline, as a share of the goal


@dataclass(frozen=True)
class Deferral:
    """Deferral of rows until enough of them share a pass over R, but for at most ``goal_s``.

    A pass takes ``pass_s`` seconds, and a batch begins about every ``every_s``.
    """

    goal_s: float
    pass_s: float
    every_s: float

    @property
    def enough_rows(self) -> float:
        """Rows that must share a pass to make its cost per row negligible."""
        return self.pass_s / _ROW_S

    def is_due(self, waiting: Sequence[WaitingFile], now: float, last_drain_s: float) -> bool:
        """True if the deferred rows must go on now: there are enough of them, or the oldest is close to its deadline.

        ``last_drain_s`` is how long the last draining batch took.

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
