"""Accounts: count the rows of a task by outcome, each row once, so that a lost row shows up."""

from __future__ import annotations

import numpy as np

from semistream.kernels.array_types import Int64s
from semistream.pipelines.steps.row_flags import RowFlags

STALLED = "stalled"
OUTCOMES = ("pending", "joined", "unmatched", "duplicate", "invalid", "shed")
"""Outcomes of a row. A row whose results have several outcomes counts for the first of these."""


class Accounts:
    """Outcomes of the rows of a task, by row number.

    >>> accounts = Accounts()
    >>> numbers = accounts.enter(3)
    >>> accounts.end("joined", numbers[:2]); accounts.end("unmatched", numbers[1:])
    >>> accounts.outcomes()[0]
    {'pending': 0, 'joined': 2, 'unmatched': 1, 'duplicate': 0, 'invalid': 0, 'shed': 0}
    """

    def __init__(self) -> None:
        self._ended = {outcome: RowFlags() for outcome in (STALLED, *OUTCOMES)}
        self._numbered = 0
        self._unnumbered = dict.fromkeys(OUTCOMES, 0)

    @property
    def rows(self) -> int:
        """Rows entered so far."""
        return self._numbered + sum(self._unnumbered.values())

    def enter(self, rows: int) -> Int64s:
        """Assign numbers to new rows."""
        self._numbered += rows
        return np.arange(self._numbered - rows, self._numbered)

    def enter_and_end(self, outcome: str, rows: int) -> None:
        """Count rows that all end at once with the same outcome; they get no numbers."""
        self._unnumbered[outcome] += rows

    def origin(self) -> Origin:
        """Return a mapping that renumbers rows of an earlier task."""
        return Origin(self)

    def end(self, outcome: str, numbers: Int64s) -> None:
        """Record the outcome of rows, by number."""
        self._ended[outcome].set(numbers)

    def outcomes(self) -> tuple[dict[str, int], int]:
        """Return the number of rows by outcome, and of stalled rows; a row with neither is missing from the sum."""
        counted = self._ended[STALLED].upto(self._numbered).copy()
        stalled = int(np.count_nonzero(counted))
        outcomes = dict(self._unnumbered)
        for outcome in OUTCOMES:
            if not self._ended[outcome].untouched:  # most outcomes are never used; skip their pass over all rows
                flags = self._ended[outcome].upto(self._numbered)
                outcomes[outcome] += int(np.count_nonzero(flags & ~counted))
                counted |= flags
        return outcomes, stalled


class Origin:
    """Mapping from the row numbers of an earlier task to new ones: equal old numbers share one new number."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._old = np.zeros(0, np.int64)
        self._new = np.zeros(0, np.int64)

    def numbers(self, old: Int64s) -> Int64s:
        """Return the new numbers of rows, and assign them on first sight."""
        unseen = np.setdiff1d(old, self._old)
        if unseen.size:
            new = self._accounts.enter(unseen.size)
            both, numbered = np.concatenate([self._old, unseen]), np.concatenate([self._new, new])
            order = np.argsort(both, kind="stable")
            self._old, self._new = both[order], numbered[order]
        return self._new[np.searchsorted(self._old, old)]
