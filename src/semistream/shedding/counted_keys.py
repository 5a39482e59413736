"""CountedKeys: keys with their numbers of rows, as many as there is room for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistream.kernels.types import Int64s

SLOT_BYTES = 64  # of a key: 16 at rest, the rest while keys are counted, merged and sorted


@dataclass(frozen=True)
class CountedKeys:
    """Keys by ascending code with their rows; any other key has at most ``bound`` rows.

    Parameters
    ----------
    codes, counts
        The keys that are listed.
    bound
        What keys that are not listed have at most.
    unlisted
        What such a key is taken to have: the average of them, from 1 to ``bound``; 0 if there are none.
    slack
        By how much a count may be too low.
    """

    codes: Int64s
    counts: Int64s
    bound: int
    unlisted: int
    slack: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.codes.nbytes + self.counts.nbytes

    @classmethod
    def of(cls, codes: Int64s, counts: Int64s, *, bound: int, rows: int, keys: int) -> CountedKeys:
        """Of ``rows`` of ``keys`` in all, those that are listed; nothing is listed if no key has more than one row."""
        if keys and rows == keys:
            nothing = np.empty(0, np.int64)
            return cls(nothing, nothing, 1, 1)
        others = keys - codes.size
        average = round((rows - int(counts.sum())) / others) if others > 0 else 0
        return cls(codes, counts, bound, min(max(average, 1), bound))

    def fitting(self, slots: int) -> CountedKeys:
        """The same in at most ``slots`` keys: those with the fewest rows go, and the bound rises to what they had."""
        if self.codes.size <= slots:
            return self
        bound = cut_to(self.counts, slots, self.bound)
        stays = self.counts > bound
        unlisted = max(self.unlisted, round(float(self.counts[~stays].mean())), 1)
        return CountedKeys(self.codes[stays], self.counts[stays], bound + self.slack, unlisted, self.slack)


def cut_to(counts: Int64s, slots: int, bound: int) -> int:
    """The least bound, not below the one given, that at most ``slots`` of the counts are above."""
    if counts.size <= slots:
        return bound
    place = counts.size - slots - 1
    return max(int(np.partition(counts, place)[place]), bound)
