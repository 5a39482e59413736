"""ByteRing: first-in, first-out allocation of variable-size places in one block of bytes."""

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
    """A range of bytes in a ring."""

    begin: int
    nbytes: int


class ByteRing:
    """A block of bytes in which places are taken one after the other and freed in the same order.

    Allocation wraps around at the end of the block; a remainder too short for the next place stays unused for one
    round. The block is ``memory``, if given.
    """

    def __init__(self, nbytes: int, memory: Bytes | None = None) -> None:
        self.block = allocate_buffer(aligned(nbytes)) if memory is None else memory
        self.mover = ByteMover(self.block)
        self._taken: deque[Place] = deque()
        self._next = 0
        self._held = 0  # bytes taken

    def room(self, wanted: int) -> Place:
        """Return the free place to take next, with ``wanted`` bytes if possible; an empty ring returns the block."""
        if not self._held:
            self._next = 0
            return Place(0, self.block.size)
        first = self._taken[0].begin
        if self._next <= first:
            return Place(self._next, first - self._next)
        behind = Place(self._next, self.block.size - self._next)
        return Place(0, first) if behind.nbytes < min(wanted, first) else behind

    def take(self, begin: int, nbytes: int) -> None:
        """Take the first ``nbytes`` of the place that `room` returned."""
        self._taken.append(Place(begin, nbytes))
        self._next = begin + aligned(nbytes)
        self._held += aligned(nbytes)

    def shrink(self, sizes: Sequence[int]) -> list[int]:
        """Shrink places to their first ``sizes`` bytes, make free space contiguous, and return where each begins."""
        taken = list(self._taken)
        from_end = sum(place.begin >= taken[0].begin for place in taken) if self._wraps else 0
        spans = [aligned(size) for size in sizes]
        at_end, in_front = spans[:from_end], spans[from_end:]
        begins = [*accumulate(at_end, initial=self.block.size - sum(at_end))][:-1]
        begins += [*accumulate(in_front, initial=0)][:-1]
        upwards = reversed(range(from_end))  # so that no move overwrites a place not moved yet
        for i in [*upwards, *range(from_end, len(taken))]:
            self.mover.move(taken[i].begin, sizes[i], begins[i])
        self._taken = deque(Place(begin, size) for begin, size in zip(begins, sizes, strict=True))
        self._next = begins[-1] + spans[-1]
        self._held = sum(spans)
        return begins

    @property
    def _wraps(self) -> bool:
        """True if the newest place lies before the oldest."""
        return self._taken[-1].begin < self._taken[0].begin

    def free(self) -> None:
        """Free the oldest place."""
        self._held -= aligned(self._taken.popleft().nbytes)


class ByteMover:
    """Moves bytes within a block; unlike NumPy, it needs no temporary copy where source and target overlap."""

    def __init__(self, block: Bytes) -> None:
        self.block = block
        self._start = block.ctypes.data

    def move(self, at: int, nbytes: int, to: int) -> None:
        """Move ``nbytes`` bytes from position ``at`` to position ``to``."""
        if at != to:
            ctypes.memmove(self._start + to, self._start + at, nbytes)


def aligned(nbytes: int) -> int:
    """Round ``nbytes`` up to whole words of 8 bytes."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
