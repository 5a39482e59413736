"""Accounts: each row of a task has one outcome, and they are seen to add up."""

from __future__ import annotations

import numpy as np

from semistream.pipelines.steps.row_flags import Numbers, RowFlags

STALLED = "stalled"
OUTCOMES = ("pending", "joined", "unmatched", "duplicate", "invalid", "shed")
"""What can become of a row. One with several results may end in several ways; it counts for the first of these."""


class Accounts:
    """Which rows of a task have stopped how.

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
        """All rows that came."""
        return self._numbered + sum(self._unnumbered.values())

    def enter(self, rows: int) -> Numbers:
        """Numbers for rows that come."""
        self._numbered += rows
        return np.arange(self._numbered - rows, self._numbered)

    def enter_and_end(self, outcome: str, rows: int) -> None:
        """Rows come only to stop at once, all alike: they need no numbers, however many they are."""
        self._unnumbered[outcome] += rows

    def origin(self) -> Origin:
        """New numbers for rows that had others."""
        return Origin(self)

    def end(self, outcome: str, numbers: Numbers) -> None:
        """Rows have stopped, by number."""
        self._ended[outcome].set(numbers)

    def outcomes(self) -> tuple[dict[str, int], int]:
        """Rows by outcome, and those that are stalled; a row without either is in none, and so missed."""
        counted = self._ended[STALLED].upto(self._numbered).copy()
        stalled = int(np.count_nonzero(counted))
        outcomes = dict(self._unnumbered)
        for outcome in OUTCOMES:
            if not self._ended[outcome].untouched:  # most are never used, and rows are many
                flags = self._ended[outcome].upto(self._numbered)
                outcomes[outcome] += int(np.count_nonzero(flags & ~counted))
                counted |= flags
        return outcomes, stalled


class Origin:
    """The numbers of rows that were numbered before, each of which has one new number here."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._old = np.zeros(0, np.int64)
        self._new = np.zeros(0, np.int64)

    def numbers(self, old: Numbers) -> Numbers:
        """The new numbers of rows with old ones."""
        unseen = np.setdiff1d(old, self._old)
        if unseen.size:
            new = self._accounts.enter(unseen.size)
            both, numbered = np.concatenate([self._old, unseen]), np.concatenate([self._new, new])
            order = np.argsort(both, kind="stable")
            self._old, self._new = both[order], numbered[order]
        return self._new[np.searchsorted(self._old, old)]
