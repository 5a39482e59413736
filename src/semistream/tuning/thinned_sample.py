"""ThinnedSample: codes spread evenly over a stretch of the stream, however long it gets."""

from __future__ import annotations

import numpy as np

from semistream.kernels.types import Int64s


class ThinnedSample:
    """Every n-th code that was added, at most ``capacity``, an even number; n is 1 at first and doubles as need be.

    So all codes are equally likely to be in it, and it is never less than half full once it has been full.
    """

    def __init__(self, capacity: int) -> None:
        self._codes = np.empty(capacity, np.int64)
        self._size = 0
        self._added = 0
        self.step = 1

    @staticmethod
    def memory_bytes(capacity: int) -> int:
        """What it holds."""
        return 8 * capacity

    @property
    def codes(self) -> Int64s:
        """What is in it, in the order in which it was added."""
        return self._codes[: self._size]

    def add(self, codes: Int64s) -> None:
        """Take in some of these codes."""
        begin = 0
        while begin < codes.size:
            begin += -(self._added + begin) % self.step
            taken = codes[begin :: self.step][: self._codes.size - self._size]
            self._codes[self._size : self._size + taken.size] = taken
            self._size += taken.size
            begin += taken.size * self.step
            if self._size == self._codes.size:
                self._size //= 2
                self._codes[: self._size] = self._codes[: 2 * self._size : 2].copy()
                self.step *= 2
        self._added += codes.size

    def every(self, step: int) -> Int64s:
        """Every so many-th of the codes that were added: a multiple of `step`."""
        return self.codes[:: step // self.step]
