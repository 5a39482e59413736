"""Background reads outside the Python interpreter.

A `ReadLane` is a thread that reads files in compiled code, without the interpreter's lock. `ReadLanes` are a few lanes
that together read one run after the other.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from semistream.relation.read.disk import ALIGNMENT
from semistream.relation.read.kernels.serve_reads import serve_reads
from semistream.storage.locks import OwnProcess

Read = tuple[int, int, int, int]
"""A file descriptor, the memory address to read to, the number of bytes, and their offset in the file."""

_MOST_READS = 64


class ReadLane:
    """A thread that does reads in the background, in the order started, while the caller computes.

    Up to ``depth`` groups of reads can be started before the first must be waited for.

    A Python thread that wakes up to read must first wait for the interpreter's lock, and then makes the caller wait for
    it; with short reads, most of the time is lost there. This thread sleeps and reads in compiled code. It raises no
    errors and checks nothing: if it reads too few bytes, the caller must read again to learn the reason.
    """

    most_reads = _MOST_READS

    def __init__(self, depth: int) -> None:
        self._asked, self._done = (os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE) for _ in range(2))
        self._process = OwnProcess()
        self._requests = np.zeros((depth, _MOST_READS, 4), np.int64)
        self._got = np.zeros((depth, _MOST_READS), np.int64)
        self._ends = np.zeros(1, np.int64)
        self._started = self._waited = 0
        arguments = self._asked, self._done, self._requests, self._got, self._ends, np.zeros(1, np.uint64)
        self._thread = threading.Thread(target=serve_reads, args=arguments, name="semistream-lane", daemon=True)
        self._thread.start()

    @staticmethod
    def supported() -> bool:
        """True if this system supports lanes (has eventfd)."""
        return hasattr(os, "eventfd") and sys.platform == "linux"  # the kernel calls pread64

    def start(self, reads: Sequence[Read]) -> None:
        """Start a group of reads, after all groups before. Keep the memory allocated until `wait` returns for it."""
        requests = self._requests[self._started % len(self._requests)]
        for i, read in enumerate(reads):
            requests[i] = read
        if len(reads) < _MOST_READS:
            requests[len(reads), 2] = 0
        self._started += 1
        os.eventfd_write(self._asked, 1)

    def wait(self, reads: int) -> list[int]:
        """Wait for the oldest group of reads not yet waited for; return the bytes read by each."""
        os.eventfd_read(self._done)
        got: list[int] = self._got[self._waited % len(self._got), :reads].tolist()
        self._waited += 1
        return got

    def close(self) -> None:
        """End the thread after its current reads; in a fork, which shares the events with it, leave it alone."""
        if not self._process.forked:
            self._ends[0] = 1
            os.eventfd_write(self._asked, 1)
            self._thread.join()
        os.close(self._asked)
        os.close(self._done)


_LANES = 2
_LEAST_PART_BYTES = 512 << 10  # a read is split only if each lane gets at least this much


class LaneReads(NamedTuple):
    """A number of ``reads`` in progress. ``parts`` lists, for each lane, the positions of its reads."""

    parts: list[tuple[ReadLane, list[int]]]
    reads: int

    def wait(self) -> list[int]:
        """Wait for all reads; return the bytes of each."""
        got = [0] * self.reads
        for lane, places in self.parts:
            for place, nbytes in zip(places, lane.wait(len(places)), strict=True):
                got[place] += nbytes
        return got


class ReadLanes:
    """Lanes that together read runs in the background, in the order started.

    Up to ``depth`` runs can be started before the first must be waited for.

    All lanes read the same run, each a part of it. If each lane read a run of its own, the disk would serve the runs
    equally and they would be ready at about the same time; the disk would then be idle while the first one is joined.
    """

    most_reads = ReadLane.most_reads
    supported = ReadLane.supported

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._lanes: list[ReadLane] = []  # created when first needed

    def start(self, reads: Sequence[Read]) -> LaneReads:
        """Start the reads of a run, after those of all runs before. Wait for runs in the same order."""
        parts, shares = [], _shared_out(reads)
        while len(self._lanes) < len(shares):
            self._lanes.append(ReadLane(self._depth))
        for lane, share in zip(self._lanes, shares, strict=False):
            lane.start([read for _, read in share])
            parts.append((lane, [place for place, _ in share]))
        return LaneReads(parts, len(reads))

    def close(self) -> None:
        """End the threads after their current reads."""
        while self._lanes:
            self._lanes.pop().close()


def _shared_out(reads: Sequence[Read]) -> list[list[tuple[int, Read]]]:
    """Divide reads among lanes, each with its position in ``reads``: several in turn, one long read in parts."""
    if len(reads) > 1:
        placed = list(enumerate(reads))
        return [placed[lane::_LANES] for lane in range(min(_LANES, len(reads)))]
    ((descriptor, address, nbytes, offset),) = reads
    if nbytes < _LANES * _LEAST_PART_BYTES:
        return [[(0, reads[0])]]
    part = -(-nbytes // (_LANES * ALIGNMENT)) * ALIGNMENT
    begins = range(0, nbytes, part)
    return [[(0, (descriptor, address + begin, min(part, nbytes - begin), offset + begin))] for begin in begins]
