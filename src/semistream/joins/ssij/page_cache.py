"""Page cache of SSIJ: cached pages of R, and for every page of R the number of tuples that wait for it.

The pages are in the frames of a `FrameArena`, one memory mapping that returns memory to the system frame by frame.
"""

from __future__ import annotations

import mmap
import sys
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from semistream.budget import MemoryBudget
from semistream.joins.parts.memory_split import page_overhead
from semistream.joins.ssij.kernels import choose_kept, copy_pages
from semistream.joins.ssij.replacement import Replacement
from semistream.kernels.array_types import Bools, Bytes, Int64s
from semistream.relation import PageRun, Relation

BLOCK = mmap.PAGESIZE
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)  # a name since Python 3.12
_GIVES_BACK = hasattr(mmap, "MADV_DONTNEED")  # else a frame keeps its memory until it is used again

Frames = npt.NDArray[np.integer]
N = TypeVar("N", int, Int64s)


def blocks_bytes(nbytes: N) -> N:
    """Round ``nbytes`` up to whole blocks."""
    return -(-nbytes // BLOCK) * BLOCK


def _reserved(nbytes: int) -> mmap.mmap:
    """Reserve addresses; memory is taken when it is written."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, nbytes)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


class FrameArena:
    """An array of ``frames`` frames, each for one page, of ``frame_bytes`` bytes, a multiple of `BLOCK`.

    Addresses are reserved for all frames, but memory is taken block by block only when written. `give_back` returns it
    to the system at once. To make that work, the mapping is private (the system would keep the blocks of a shared one)
    and has no huge pages (the system keeps a huge page while any part of it is in use).
    """

    def __init__(self, frames: int, frame_bytes: int) -> None:
        self.frames = frames
        self.frame_bytes = frame_bytes
        self._memory = _reserved(max(frames * frame_bytes, BLOCK))
        self.buffer: Bytes = np.frombuffer(self._memory, np.uint8)

    def starts(self, frames: Frames) -> Int64s:
        """Return where frames begin in the buffer."""
        return frames.astype(np.int64) * self.frame_bytes

    def write(self, run: PageRun, chosen: Bools, frames: Frames) -> None:
        """Copy the chosen pages of a run into frames."""
        targets = self.starts(frames)
        for starts, nbytes in zip(run.starts[:, chosen], run.nbytes[:, chosen], strict=True):
            copy_pages(run.buffer, starts, nbytes, self.buffer, targets)
            targets += nbytes  # the segments of a page are contiguous

    def give_back(self, frames: Frames) -> None:
        """Return the memory of these frames to the system, adjacent frames in one call."""
        if not _GIVES_BACK:
            return
        frames = np.sort(frames)
        begins = np.flatnonzero(np.diff(frames, prepend=-2) > 1)
        ends = np.append(begins[1:], frames.size)
        for first, count in zip(frames[begins].tolist(), (ends - begins).tolist(), strict=True):
            self._memory.madvise(mmap.MADV_DONTNEED, first * self.frame_bytes, count * self.frame_bytes)


_CHARGE = "cached pages"
_FRAME_BYTES = 48  # bookkeeping of a frame: page, worth, tuples met, place in the free list, rank for eviction
_SPARE_SHARE = 8  # frames for 1/8 more memory, as another version of R may leave the cache a little more
_PAGE_BYTES = 17  # bookkeeping of a page of R: frame, waiting tuples, worth, kept flag


class PageCache:
    """The cached pages of R (CR of SSIJ IV-A), up to a number of bytes, each charged to the budget.

    ``waiting[page]`` counts the tuples in the stream buffer that need a page, cached or not: the lengths of the lists
    of the inverted index. ``frame_of[page]`` is the frame that holds a page, or -1. A page is charged its whole blocks
    of memory and the overhead of locating its rows, at least as much as the 1% quantile of page sizes, so that the
    frames allocated for ``nbytes`` always suffice. An evicted page's memory returns to the system.
    """

    def __init__(self, relation: Relation, nbytes: int, budget: MemoryBudget, policy: Replacement) -> None:
        sizes = relation.table.nbytes
        smallest = int(np.quantile(sizes, 0.01, method="lower")) if sizes.size else BLOCK
        self._least = blocks_bytes(smallest)
        self._overhead = page_overhead(relation)
        self._most_bytes = nbytes + nbytes // _SPARE_SHARE
        self.budget = budget
        self._policy = policy
        frames = self._most_bytes // (self._least + self._overhead + _FRAME_BYTES)
        self._arena = FrameArena(frames, blocks_bytes(int(sizes.max(initial=BLOCK))))
        self._page = np.full(frames, -1, np.int32)
        self._worth = np.zeros(frames, np.int32)
        self.met = np.zeros(frames, np.int32)  # scratch: tuples per frame in the current online phase
        self._free = np.arange(frames - 1, -1, -1, dtype=np.int32)
        self._held = 0  # pages in frames
        self.nbytes = 0
        self._open(relation)

    @staticmethod
    def room_beside(relation: Relation, pool: int, other_bytes: int) -> float:
        """Return the pages of average size that fit in a ``pool`` beside ``other_bytes`` for something else."""
        page_bytes = blocks_bytes(relation.nbytes // max(relation.num_pages, 1)) + page_overhead(relation)
        frames_bytes = (pool + pool // _SPARE_SHARE) * _FRAME_BYTES / (page_bytes + _FRAME_BYTES)
        return max(pool - frames_bytes - other_bytes, 0.0) / page_bytes

    def _open(self, relation: Relation) -> None:
        self.relation = relation
        self.frame_of = np.full(relation.num_pages, -1, np.int32)
        self.waiting = np.zeros(relation.num_pages, np.int32)

    @staticmethod
    def page_index_bytes(pages: int) -> int:
        """Return the bytes of bookkeeping for a relation of ``pages`` pages, cached or not."""
        return pages * _PAGE_BYTES

    @property
    def frame_index_bytes(self) -> int:
        """Bytes of bookkeeping for all frames, occupied or not."""
        return self._arena.frames * _FRAME_BYTES

    @property
    def pages(self) -> int:
        """Number of cached pages."""
        return self._held

    def suits(self, relation: Relation, nbytes: int) -> bool:
        """Return True if the frames fit a relation's pages and layout, and ``nbytes`` within a factor of two."""
        largest = int(relation.table.nbytes.max(initial=0))
        enough = self._most_bytes // 2 <= nbytes <= self._most_bytes and largest <= self._arena.frame_bytes
        return enough and relation.layout == self.relation.layout

    def carry_over(self, relation: Relation, new_numbers: Int64s) -> None:
        """Switch to another version, in which page p has the number ``new_numbers[p]``, or -1 if it is gone.

        Unchanged pages stay cached; call `charge` to charge them. No tuple may be waiting.
        """
        frames = self._frames()
        numbers = new_numbers[self._page[frames]]
        self._free_frames(frames[numbers < 0])
        kept = frames[numbers >= 0]
        self._open(relation)
        self._page[kept] = numbers[numbers >= 0]
        self.frame_of[self._page[kept]] = kept

    def charge(self) -> None:
        """Set the budget's charge for cached pages to their current bytes."""
        self.budget.recharge(_CHARGE, self.nbytes)

    def count_joined(self) -> None:
        """Add the tuples in ``met`` to the worth of their pages, and clear ``met``."""
        self._policy.joined(self._worth, self.met)
        self.met.fill(0)

    def met_pages(self) -> PageRun:
        """Return the pages with tuples in ``met``."""
        return self._run(np.flatnonzero(self.met))

    def awaited_pages(self) -> PageRun:
        """Return the cached pages needed by tuples in the stream buffer."""
        frames = self._frames()
        return self._run(frames[self.waiting[self._page[frames]] > 0])

    def _run(self, frames: npt.NDArray[np.integer]) -> PageRun:
        """Return the pages in some frames, in code order."""
        pages = self._page[frames].astype(np.intp)
        pages.sort()
        table = self.relation.table
        nbytes = np.stack([segment.nbytes[pages] for segment in table.segments])
        starts = self._arena.starts(self.frame_of[pages]) + np.cumsum(nbytes, axis=0) - nbytes
        return PageRun(self.relation.layout, self._arena.buffer, pages, starts, table.rows[pages], nbytes)

    def served(self, pages: npt.NDArray[np.intp]) -> None:
        """Credit pages with the tuples that waited for them, which have now met them (Algorithm 2, line 14)."""
        frames = self.frame_of[pages]
        cached = frames[frames >= 0]
        worth = self._worth[cached]
        self._policy.awaited(worth, self.waiting[self._page[cached]])
        self._worth[cached] = worth
        self.waiting[pages] = 0

    def choose(self, capacity: int) -> Bools:
        """Return a mask of the pages to cache at the end of a join phase, within ``capacity`` bytes (SSIJ IV-C).

        These have the greatest worth among the cached pages and the pages about to be read. Chosen pages not cached yet
        are ToKeep; cached pages not chosen are ToRemove.
        """
        frames = self._frames()
        worth = np.zeros(self.frame_of.size, np.int32)
        worth[self._page[frames]] = self._worth[frames]
        self._policy.awaited(worth, self.waiting)
        worth[(self.waiting == 0) & (self.frame_of < 0)] = -1
        kept = np.empty(worth.size, np.bool_)
        sizes = self.relation.table.nbytes
        choose_kept(worth, self.frame_of, sizes, BLOCK, self._least, self._overhead, capacity, kept)
        return kept

    def keep(self, kept: Bools) -> None:
        """Evict all pages except those in ``kept``."""
        frames = self._frames()
        self._remove(frames[~kept[self._page[frames]]])

    def shrink(self, nbytes: int) -> None:
        """Evict the pages of the least worth until the others take at most ``nbytes``."""
        surplus = self.nbytes - nbytes
        if surplus <= 0 or self._held == 0:
            return
        frames = self._frames()
        pages = self._page[frames]
        worth = self._worth[frames]
        self._policy.awaited(worth, self.waiting[pages])
        rank = (worth.astype(np.int64) << 32) - pages  # among equals, higher page numbers go first
        least = self._least + self._overhead
        most = min(-(-surplus // least), frames.size)  # upper bound of the pages to evict
        if most < frames.size:
            chosen = np.argpartition(rank, most - 1)[:most]
            frames, rank = frames[chosen], rank[chosen]
        frames = frames[np.argsort(rank)]
        costs = np.cumsum(self._cost(self._page[frames]))
        self._remove(frames[: int(np.searchsorted(costs, surplus, "left")) + 1])

    def put(self, run: PageRun, chosen: Bools) -> None:
        """Copy the chosen pages of a run, none of them cached yet, into the cache."""
        if not chosen.any():
            return
        pages = run.pages[chosen]
        self.nbytes += int(self._cost(pages).sum())
        self.charge()
        end = self._free.size - self._held
        frames = self._free[end - pages.size : end]
        self._arena.write(run, chosen, frames)
        self._page[frames] = pages
        self._worth[frames] = 0
        self.frame_of[pages] = frames
        self._held += pages.size

    def end_phase(self) -> None:
        """End a join phase: utilities count from zero again."""
        self._policy.end_phase(self._worth)

    def _frames(self) -> npt.NDArray[np.intp]:
        """Return the occupied frames."""
        return np.flatnonzero(self._page >= 0)

    def _cost(self, pages: npt.NDArray[np.integer]) -> Int64s:
        """Return the bytes charged for each page, by the same formula as `choose_kept`."""
        costs: Int64s = np.maximum(blocks_bytes(self.relation.table.nbytes[pages]), self._least) + self._overhead
        return costs

    def _remove(self, frames: npt.NDArray[np.intp]) -> None:
        if frames.size:
            self._free_frames(frames)
            self.charge()

    def _free_frames(self, frames: npt.NDArray[np.intp]) -> None:
        pages = self._page[frames]
        self.nbytes -= int(self._cost(pages).sum())
        self._arena.give_back(frames)
        self.frame_of[pages] = -1
        self._page[frames] = -1
        end = self._free.size - self._held
        self._free[end : end + frames.size] = frames
        self._held -= frames.size
