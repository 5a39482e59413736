"""Which of the rows that wait go on in a batch: those that may have a partner now, and those that waited enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semistream.etl.ledger_entries import WaitingFile

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
