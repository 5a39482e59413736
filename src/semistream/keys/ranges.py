"""CodeRanges: for each stream tuple, the range of R's key codes in which its matches lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistream.keys.values import Codes, Mask, both

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""The first and the last code there is."""


@dataclass(frozen=True)
class CodeRanges:
    """For each tuple an inclusive range of codes, from ``low`` to ``high`` (None: ``low`` alone).

    ``possible`` marks the tuples that can match at all (None: all of them); of the others the range means nothing. A
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
        """Ranges without a limit; they take no memory of their own."""
        return cls(every(LEAST, rows), every(GREATEST, rows), None)

    @classmethod
    def between(cls, low: Codes, high: Codes, possible: Mask | None) -> CodeRanges:
        """Ranges with these limits, of which those that are empty are not possible."""
        filled = low <= high
        return cls(low, high, possible if filled.all() else both(possible, filled))

    def intersect(self, other: CodeRanges) -> CodeRanges:
        """The codes that are in both."""
        low = np.maximum(self.low, other.low)
        high = np.minimum(self.last, other.last)
        return CodeRanges.between(low, high, both(self.possible, other.possible))

    @property
    def asked(self) -> Codes:
        """Where the ranges of tuples that can match begin: the codes that are asked for, if each asks for one."""
        return self.low if self.possible is None else self.low[self.possible]

    def first(self, rows: int) -> CodeRanges:
        """Those of the first tuples."""
        high = None if self.high is None else self.high[:rows]
        return CodeRanges(self.low[:rows], high, None if self.possible is None else self.possible[:rows])

    @property
    def last(self) -> Codes:
        """The last code of each range."""
        return self.low if self.high is None else self.high

    def contain(self, codes: Codes) -> Mask:
        """Row by row, whether the range is possible and has the code in it."""
        inside = (self.low <= codes) & (codes <= self.last)
        return inside if self.possible is None else inside & self.possible


def every(code: int, rows: int) -> Codes:
    """The same code in every row, without memory of its own."""
    return np.broadcast_to(np.int64(code), rows)
