"""ReadLane: a thread that reads files and needs nothing of the interpreter for it.

ReadLanes: some lanes that read one run after the other, each run together.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from semistream.relation.read.disk import ALIGNMENT
from semistream.relation.read.kernels.serve_reads import serve_reads

Read = tuple[int, int, int, int]
"""A descriptor, the address to read to, how many bytes, and where in the file they start."""

_MOST_READS = 64


class ReadLane:
    """Reads in the background, in the order in which it is asked, while the caller computes; up to ``depth`` times
    before the first must be waited for.

    A thread of Python that wakes up to read must wait for the interpreter's lock, and then keeps the caller waiting
    for it: with short reads, most of the time goes there. This one sleeps and reads in compiled code. It neither
    raises nor checks: who finds that less was read than asked for reads again, to see why.
    """

    most_reads = _MOST_READS

    def __init__(self, depth: int) -> None:
        self._asked, self._done = (os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE) for _ in range(2))
        self._requests = np.zeros((depth, _MOST_READS, 4), np.int64)
        self._got = np.zeros((depth, _MOST_READS), np.int64)
        self._ends = np.zeros(1, np.int64)
        self._started = self._waited = 0
        arguments = self._asked, self._done, self._requests, self._got, self._ends, np.zeros(1, np.uint64)
        self._thread = threading.Thread(target=serve_reads, args=arguments, name="semistream-lane", daemon=True)
        self._thread.start()

    @staticmethod
    def supported() -> bool:
        """Whether this system has what lanes are made of."""
        return hasattr(os, "eventfd")

    def start(self, reads: Sequence[Read]) -> None:
        """Read when all that was asked for before is read. The memory must stay until `wait` has returned for it."""
        requests = self._requests[self._started % len(self._requests)]
        for i, read in enumerate(reads):
            requests[i] = read
        if len(reads) < _MOST_READS:
            requests[len(reads), 2] = 0
        self._started += 1
        os.eventfd_write(self._asked, 1)

    def wait(self, reads: int) -> list[int]:
        """Wait for what was asked for first, and not waited for yet; gives the bytes of each of its reads."""
        os.eventfd_read(self._done)
        got: list[int] = self._got[self._waited % len(self._got), :reads].tolist()
        self._waited += 1
        return got

    def close(self) -> None:
        """End the thread, when it has read what it reads now."""
        self._ends[0] = 1
        os.eventfd_write(self._asked, 1)
        self._thread.join()
        os.close(self._asked)
        os.close(self._done)


_LANES = 2
_LEAST_PART_BYTES = 512 << 10  # a run of less than one such part for each lane is not cut


class LaneReads(NamedTuple):
    """Some ``reads`` that lanes do: each lane those at some places among them, or parts of these."""

    parts: list[tuple[ReadLane, list[int]]]
    reads: int

    def wait(self) -> list[int]:
        """Wait until all is read; gives the bytes of each read."""
        got = [0] * self.reads
        for lane, places in self.parts:
            for place, nbytes in zip(places, lane.wait(len(places)), strict=True):
                got[place] += nbytes
        return got


class ReadLanes:
    """Reads runs in the background, in the order in which they are asked for; up to ``depth`` before the first must be
    waited for.

    If each lane read a run of its own, the disk would serve all of them alike, so that they would be ready at about the
    same time: then it would have nothing to do while the first of them is joined. So all lanes read the same run, of
    which each has a part.
    """

    most_reads = ReadLane.most_reads
    supported = ReadLane.supported

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._lanes: list[ReadLane] = []  # as many as were needed so far

    def start(self, reads: Sequence[Read]) -> LaneReads:
        """Begin with the reads of a run when those of all runs before are done. Wait for runs in the same order."""
        parts, shares = [], _shared_out(reads)
        while len(self._lanes) < len(shares):
            self._lanes.append(ReadLane(self._depth))
        for lane, share in zip(self._lanes, shares, strict=False):
            lane.start([read for _, read in share])
            parts.append((lane, [place for place, _ in share]))
        return LaneReads(parts, len(reads))

    def close(self) -> None:
        """End the threads, when they have read what they read now."""
        while self._lanes:
            self._lanes.pop().close()


def _shared_out(reads: Sequence[Read]) -> list[list[tuple[int, Read]]]:
    """The reads of each lane, with their places among all: of several, every other; of a long one, a part."""
    if len(reads) > 1:
        placed = list(enumerate(reads))
        return [placed[lane::_LANES] for lane in range(min(_LANES, len(reads)))]
    ((descriptor, address, nbytes, offset),) = reads
    if nbytes < _LANES * _LEAST_PART_BYTES:
        return [[(0, reads[0])]]
    part = -(-nbytes // (_LANES * ALIGNMENT)) * ALIGNMENT
    begins = range(0, nbytes, part)
    return [[(0, (descriptor, address + begin, min(part, nbytes - begin), offset + begin))] for begin in begins]
