"""ReadLane: a thread that reads files and needs nothing of the interpreter for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import numpy as np

from semistream.kernels.read_lane import serve_reads

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
