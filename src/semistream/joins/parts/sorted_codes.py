"""SortedRanges: the codes that stream tuples ask for, sorted, to match with runs of R."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from semistream.joins.condition.run_codes import RunCodes
from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.kernels.merge import match_pages, match_ranges, merge_ranges, merge_sorted
from semistream.kernels.sort import sort_codes
from semistream.keys import CodeRanges


@dataclass(frozen=True)
class SortedRanges:
    """Ranges of codes in ascending order, and the tuples that ask for them.

    If each tuple asks for a single code, only ``low`` is set. Otherwise ranges go from ``low`` to ``high``, sorted by
    both, and ``reach`` is the running maximum of ``high``. It ascends too, so a binary search finds the first range
    that can touch a page, as MESH 3.4 proposes ("the buffered stream tuples may be kept ordered").
    """

    low: Int64s
    tuples: Int64s
    high: Int64s | None = None
    reach: Int64s | None = None

    @classmethod
    def of(cls, ranges: CodeRanges, tuples: Int64s) -> SortedRanges:
        """Sort the ranges of the tuples that can match."""
        low, high = ranges.low, ranges.high
        if ranges.possible is not None:
            low, tuples = low[ranges.possible], tuples[ranges.possible]
            high = None if high is None else high[ranges.possible]
        if high is None:
            ordered, order = sort_codes(low)
            return cls(ordered, tuples[order])
        by_both = np.lexsort((high, low))
        return cls._reaching(low[by_both], high[by_both], tuples[by_both])

    @classmethod
    def _reaching(cls, low: Int64s, high: Int64s, tuples: Int64s) -> SortedRanges:
        return cls(low, tuples, high, np.maximum.accumulate(high))

    @staticmethod
    def entry_bytes(single_codes: bool) -> int:
        """Return the bytes of one range with its tuple."""
        return 2 * 8 if single_codes else 4 * 8

    @property
    def size(self) -> int:
        """Number of ranges."""
        return self.low.size

    @property
    def furthest(self) -> Int64s:
        """Greatest code of the ranges up to each one, in ascending order."""
        return self.low if self.reach is None else self.reach

    def merged(self, other: SortedRanges) -> SortedRanges:
        """Merge with other ranges, in order."""
        if self.high is None or other.high is None:
            return SortedRanges(*merge_sorted(self.low, self.tuples, other.low, other.tuples))
        low, high, tuples = merge_ranges(self.low, self.high, self.tuples, other.low, other.high, other.tuples)
        return self._reaching(low, high, tuples)

    def kept(self, chosen: Bools) -> SortedRanges:
        """Return the ranges chosen by a mask."""
        if self.high is None:
            return SortedRanges(self.low[chosen], self.tuples[chosen])
        return self._reaching(self.low[chosen], self.high[chosen], self.tuples[chosen])

    def matches(
        self, codes: RunCodes, position: Int64s, page: Int32s, row: Int32s
    ) -> Iterator[tuple[Int64s, Int32s, Int32s]]:
        """Yield the pairs of a tuple and a row (page, row) of the run with a code it asks for.

        They come in pieces that fill the given arrays; a piece is valid until the next one.
        """
        cursor = np.array([0, -1, -1], np.int64)
        while cursor[0] < codes.rows.size:
            found = self._match(codes, cursor, position, page, row)
            yield self.tuples[position[:found]], *codes.places(page[:found], row[:found])

    def _match(self, codes: RunCodes, cursor: Int64s, position: Int64s, page: Int32s, row: Int32s) -> int:
        if self.high is None or self.reach is None:
            return int(match_pages(codes.words, codes.starts, codes.rows, self.low, cursor, position, page, row))
        ranges = self.low, self.high, self.reach
        return int(match_ranges(codes.words, codes.starts, codes.rows, *ranges, cursor, position, page, row))
