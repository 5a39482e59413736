"""Counts of key codes in few bytes: how often keys are asked for, roughly, and which come to be asked for often."""

from __future__ import annotations

import numpy as np

from semistream.kernels.frequency import count_hot_rows
from semistream.kernels.types import Int32s, Int64s

_LEAST_BITS = 8
_MOST_KEYS = 4096  # given out at a time
_SPARSE = 4  # counters for each time counted; with fewer they tell more of other keys than of their own


class KeyCounters:
    """A key's count is carried over in two of ``2**bits`` bytes by hashes of its code: it is never too low.

    When more is counted than these bytes can tell apart, what comes together is counted alone, which is then much.
    Counts are halved by `age`, so that they follow the stream.
    """

    def __init__(self, bits: int) -> None:
        self._bits = max(bits, _LEAST_BITS)
        self._counters = np.zeros(1 << self._bits, np.uint8)
        self._asked = np.zeros(0, np.int32)
        self._page, self._row, self._count = (np.empty(_MOST_KEYS, np.int32) for _ in range(3))
        self._counted = 0  # since counts were halved

    def count(
        self, words: Int64s, starts: Int64s, page: Int32s, row: Int32s, *, most_rows: int, threshold: int
    ) -> tuple[Int32s, Int32s, Int32s]:
        """Count codes, each named by (stretch, place in it) as often as it is asked for, stretch by stretch.

        A stretch has at most ``most_rows`` codes, ascending. Gives stretch and place of keys that come to be counted
        more than ``threshold`` times, and the counts, valid until the next call. A key is not given again until `age`.
        """
        if self._asked.size < most_rows:
            self._asked = np.zeros(most_rows, np.int32)
        self._counted += page.size
        bits = self._bits if self._counted * _SPARSE < self._counters.size else 0
        found = count_hot_rows(
            words, starts, page, row,
            self._counters, bits, threshold, self._asked, self._page, self._row, self._count,
        )  # fmt: skip
        return self._page[:found], self._row[:found], self._count[:found]

    def age(self) -> None:
        """Halve all counts."""
        self._counters >>= 1
        self._counted //= 2
