"""ByteRing: memory for things of many sizes that come and go in the same order."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from semistream.kernels.array_types import Bytes
from semistream.relation.read.disk import allocate_buffer

_ALIGNMENT = 8


class Place(NamedTuple):
    """Bytes of a ring that are free: where they begin and how many there are."""

    begin: int
    nbytes: int


class ByteRing:
    """A block of bytes in which places are taken one behind the other, and freed in the order in which they were taken.

    At the end of the block it goes on at the beginning; what is too short there stays unused for one round. The block
    is ``memory``, if that is given.
    """

    def __init__(self, nbytes: int, memory: Bytes | None = None) -> None:
        self.block = allocate_buffer(aligned(nbytes)) if memory is None else memory
        self.mover = ByteMover(self.block)
        self._taken: deque[Place] = deque()
        self._next = 0
        self._held = 0  # bytes that are taken

    def room(self, wanted: int) -> Place:
        """The place to take next: if it can be, one of ``wanted`` bytes. All that is free is in one place if nothing
        is taken.
        """
        if not self._held:
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
        self._held += aligned(nbytes)

    def shrink(self, sizes: Sequence[int]) -> list[int]:
        """Let each place that is taken have fewer bytes, its first ones, and move all of them together, so that what is
        free is in one place; gives where each begins now.
        """
        taken = list(self._taken)
        from_end = sum(place.begin >= taken[0].begin for place in taken) if self._wraps else 0
        spans = [aligned(size) for size in sizes]
        at_end, in_front = spans[:from_end], spans[from_end:]
        begins = [*accumulate(at_end, initial=self.block.size - sum(at_end))][:-1]
        begins += [*accumulate(in_front, initial=0)][:-1]
        upwards = reversed(range(from_end))  # none is moved over one that was not moved yet
        for i in [*upwards, *range(from_end, len(taken))]:
            self.mover.move(taken[i].begin, sizes[i], begins[i])
        self._taken = deque(Place(begin, size) for begin, size in zip(begins, sizes, strict=True))
        self._next = begins[-1] + spans[-1]
        self._held = sum(spans)
        return begins

    @property
    def _wraps(self) -> bool:
        """Whether what was taken last stands before what was taken first."""
        return self._taken[-1].begin < self._taken[0].begin

    def free(self) -> None:
        """Free what was taken first."""
        self._held -= aligned(self._taken.popleft().nbytes)


class ByteMover:
    """Moves bytes of a block, whether or not the places overlap; it takes no memory, as NumPy would if they do."""

    def __init__(self, block: Bytes) -> None:
        self.block = block
        self._start = block.ctypes.data

    def move(self, at: int, nbytes: int, to: int) -> None:
        """Move so many bytes that stand ``at`` to somewhere else."""
        if at != to:
            ctypes.memmove(self._start + to, self._start + at, nbytes)


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up, so that what comes behind stands at a whole word."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
