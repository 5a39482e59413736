"""SweepPace: how many tuples come in a pass of the sweep, and how many of them go at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

_LEVEL_S = 120e-6  # to take tuples out of a level, however few
_MOVED_BYTE_S = 0.25e-9  # to move what waits together
_ROW_S = 15e-9  # of R, that goes by
_MOST_LEVELS = 3


@dataclass(frozen=True)
class SweepPace:
    """The pace of a sweep whose tuples wait in ``buffer_bytes``, in levels of up to ``level_rows``.

    If it ``trims``, tuples go when they have met their pages, before their level, and what is left is moved together.
    That takes time whether few go or many, but the more are to go at once, the longer they take up room. So they go
    when there is room for `trimmed_levels`: few if a pass over R, which is to serve as many as can wait, takes long.
    """

    level_rows: int
    buffer_bytes: int
    pass_s: float
    trims: bool

    @classmethod
    def of(cls, reading_s: float, rows: float, *, level_rows: int, buffer_bytes: int, trims: bool) -> SweepPace:
        """The pace over a relation of so many rows, all of which are read in ``reading_s``."""
        return cls(level_rows, buffer_bytes, reading_s + rows * _ROW_S, trims)

    def trimmed_levels(self, capacity: int) -> int:
        """Levels for which room is made at a time, if ``capacity`` tuples can wait.

        In a pass about two levels come for each that can wait. With room made for k at once, 2 L / k times something is
        taken from L levels; and as room for k is empty at its end, of L, so much more of passes is needed.

        >>> fast, slow = (SweepPace(1000, 200_000, pass_s, trims=True) for pass_s in (0.05, 1.0))
        >>> fast.trimmed_levels(20_000), slow.trimmed_levels(20_000)
        (3, 1)
        """
        levels = capacity / self.level_rows
        trim_s = levels * _LEVEL_S + self.buffer_bytes * _MOVED_BYTE_S
        best = levels * math.sqrt(2 * trim_s / self.pass_s)
        return max(min(round(best), _MOST_LEVELS, int(levels) - 2), 1)

    def pass_rows(self, capacity: int) -> int:
        """Tuples that can come in a pass if ``capacity`` can wait, and there is to be room for the next levels.

        If each goes when it has met its pages, half of those that came in the last pass wait.
        """
        if self.trims:
            return 2 * max(capacity - (1 + self.trimmed_levels(capacity)) * self.level_rows, 1)
        return max(capacity - 2 * self.level_rows, 1)
