"""OneInMany: an unbiased sample of a stream, however it is cut into batches."""

from __future__ import annotations

import numpy as np

from semistream.kernels.types import Int64s

_AHEAD = 64  # that are drawn at once: a draw by itself would cost more than all that comes after it


class OneInMany:
    """Chooses one tuple, at random, of each ``stride`` in turn.

    All tuples are equally likely to be chosen, and a stream that repeats itself every so many tuples is no trap. Which
    are chosen does not depend on where batches end. ``random`` is drawn from by nobody else.
    """

    def __init__(self, stride: int, random: np.random.Generator) -> None:
        self._blocks = stride * np.arange(_AHEAD)
        self._stride = stride
        self._random = random
        self._draw(begin=0)

    @staticmethod
    def memory_bytes(chosen: int) -> int:
        """What it holds, and what it takes for a moment to choose so many."""
        return 4 * 8 * _AHEAD + 2 * 8 * chosen

    def _draw(self, begin: int) -> None:
        """Choose in the blocks that begin so many tuples from here."""
        self._places = self._blocks + self._random.integers(self._stride, size=_AHEAD)
        self._number = 0  # of the place that is next
        self._next = begin + int(self._places[0])  # tuples before it
        self._begin = -begin  # of the next tuple, counted as the places are

    def choose(self, codes: Int64s) -> Int64s:
        """Those of a batch that are chosen, as a copy."""
        rows = codes.size
        if self._stride == 1:
            return codes.copy()
        if self._next >= rows:
            self._next -= rows
            self._begin += rows
            return codes[:0]
        parts = []
        while self._next < rows:
            end = int(np.searchsorted(self._places, self._begin + rows))
            parts.append(codes[self._places[self._number : end] - self._begin])
            if end == _AHEAD:
                self._draw(begin=_AHEAD * self._stride - self._begin)
            else:
                self._number, self._next = end, int(self._places[end]) - self._begin
        self._next -= rows
        self._begin += rows
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
