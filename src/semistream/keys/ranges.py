"""CodeRanges: the range of R's key codes that holds the matches of each stream tuple."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistream.keys.values import Codes, Mask, both

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""The least and the greatest code."""


@dataclass(frozen=True)
class CodeRanges:
    """An inclusive range of codes for each tuple, from ``low`` to ``high`` (None: ``low`` alone).

    ``possible`` marks the tuples that can match at all (None: all); the range of any other tuple is undefined. A
    possible range is never empty.

    >>> ranges = CodeRanges.between(np.array([1, 5]), np.array([4, 2]), None)
    >>> ranges.possible.tolist(), ranges.contain(np.array([3, 3])).tolist()
    ([True, False], [True, False])
    """

    low: Codes
    high: Codes | None
    possible: Mask | None

    @classmethod
    def everything(cls, rows: int) -> CodeRanges:
        """Create unlimited ranges for ``rows`` tuples; they allocate no memory per row."""
        return cls(every(LEAST, rows), every(GREATEST, rows), None)

    @classmethod
    def between(cls, low: Codes, high: Codes, possible: Mask | None) -> CodeRanges:
        """Create ranges with these limits; empty ranges become impossible."""
        filled = low <= high
        return cls(low, high, possible if filled.all() else both(possible, filled))

    def intersect(self, other: CodeRanges) -> CodeRanges:
        """Intersect the ranges tuple by tuple."""
        low = np.maximum(self.low, other.low)
        high = np.minimum(self.last, other.last)
        return CodeRanges.between(low, high, both(self.possible, other.possible))

    @property
    def asked(self) -> Codes:
        """First codes of the possible ranges: the codes to look up, if each range is a single code."""
        return self.low if self.possible is None else self.low[self.possible]

    def first(self, rows: int) -> CodeRanges:
        """Return the ranges of the first ``rows`` tuples."""
        high = None if self.high is None else self.high[:rows]
        return CodeRanges(self.low[:rows], high, None if self.possible is None else self.possible[:rows])

    @property
    def last(self) -> Codes:
        """Last code of each range."""
        return self.low if self.high is None else self.high

    def contain(self, codes: Codes) -> Mask:
        """Test row by row that the range is possible and contains the code."""
        inside = (self.low <= codes) & (codes <= self.last)
        return inside if self.possible is None else inside & self.possible


def every(code: int, rows: int) -> Codes:
    """Return an array with the same code in every row, without allocating memory per row."""
    return np.broadcast_to(np.int64(code), rows)
