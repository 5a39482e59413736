"""ByteRing: memory for things of many sizes that come and go in the same order."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from semistream.relation.disk import allocate_buffer

_ALIGNMENT = 8


class Place(NamedTuple):
    """Bytes of a ring that are free: where they begin and how many there are."""

    begin: int
    nbytes: int


class ByteRing:
    """A block of bytes in which places are taken one behind the other, and freed in the order in which they were taken.

    At the end of the block it goes on at the beginning; what is too short there stays unused for one round.
    """

    def __init__(self, nbytes: int) -> None:
        self.block = allocate_buffer(aligned(nbytes))
        self._taken: deque[Place] = deque()
        self._next = 0

    def room(self, wanted: int) -> Place:
        """The place to take next: if it can be, one of ``wanted`` bytes. All that is free is in one place if nothing
        is taken.
        """
        if not self._taken:
            self._next = 0
            return Place(0, self.block.size)
        first = self._taken[0].begin
        if self._next <= first:
            return Place(self._next, first - self._next)
        behind = Place(self._next, self.block.size - self._next)
        return Place(0, first) if behind.nbytes < min(wanted, first) else behind

    def take(self, begin: int, nbytes: int) -> None:
        """Take the beginning of the place that `room` has given."""
        self._taken.append(Place(begin, nbytes))
        self._next = begin + aligned(nbytes)

    def free(self) -> None:
        """Free what was taken first."""
        self._taken.popleft()


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up, so that what comes behind stands at a whole word."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
