"""When rows that were deferred go on: when enough of them share a pass over R, or their deadline comes near."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from semistream.etl.ledger_entries import WaitingFile

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
