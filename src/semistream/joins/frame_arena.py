"""Frames for pages of R in one stretch of memory, which goes back to the system frame by frame."""

from __future__ import annotations

import mmap
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from semistream.kernels.page_cache import copy_pages
from semistream.kernels.types import Bools, Bytes, Int64s
from semistream.relation import PageRun

BLOCK = mmap.PAGESIZE
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.12 on

Frames = npt.NDArray[np.integer]
N = TypeVar("N", int, Int64s)


def blocks_bytes(nbytes: N) -> N:
    """Bytes of the blocks that ``nbytes`` take."""
    return -(-nbytes // BLOCK) * BLOCK


class FrameArena:
    """So many ``frames`` of ``frame_bytes``, a multiple of `BLOCK`, each for one page.

    Addresses are set aside for all of them, but memory is only taken, block by block, by what is written. `give_back`
    returns it to the system at once: for that the mapping is private (of a shared one the system would keep the
    blocks), and without huge pages (of which the system keeps the whole while a part is in use).
    """

    def __init__(self, frames: int, frame_bytes: int) -> None:
        self.frames = frames
        self.frame_bytes = frame_bytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self._memory = mmap.mmap(-1, max(frames * frame_bytes, BLOCK), flags=flags)
        self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.buffer: Bytes = np.frombuffer(self._memory, np.uint8)

    def starts(self, frames: Frames) -> Int64s:
        """Where frames begin in the buffer."""
        return frames.astype(np.int64) * self.frame_bytes

    def write(self, run: PageRun, chosen: Bools, frames: Frames) -> None:
        """Copy the chosen pages of a run into frames."""
        targets = self.starts(frames)
        for starts, nbytes in zip(run.starts[:, chosen], run.nbytes[:, chosen], strict=True):
            copy_pages(run.buffer, starts, nbytes, self.buffer, targets)
            targets += nbytes  # the segments of a page come one behind the other

    def give_back(self, frames: Frames) -> None:
        """Let go of what is in these frames; neighbours are given back together."""
        frames = np.sort(frames)
        begins = np.flatnonzero(np.diff(frames, prepend=-2) > 1)
        ends = np.append(begins[1:], frames.size)
        for first, count in zip(frames[begins].tolist(), (ends - begins).tolist(), strict=True):
            self._memory.madvise(mmap.MADV_DONTNEED, first * self.frame_bytes, count * self.frame_bytes)
