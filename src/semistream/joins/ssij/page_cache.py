"""The page cache of SSIJ: pages of R in memory, and for every page how many stream tuples ask for it.

Frames for pages of R in one stretch of memory, which goes back to the system frame by frame.
"""

from __future__ import annotations

import mmap
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


_CHARGE = "cached pages"
_FRAME_BYTES = 48  # of a frame: its page, worth and count, its place among the free ones, its rank when some must go
_SPARE_SHARE = 8  # another version of R may leave a little more memory for the cache
_PAGE_BYTES = 17  # of every page of R: its frame, who waits for it, what it is worth and whether it is kept


class PageCache:
    """The cached pages CR of SSIJ IV-A, as many as the bytes they are allowed hold, each charged to the budget.

    ``waiting[page]`` counts the tuples in the stream buffer that need a page, cached or not: the lengths of the lists
    of the inverted index. ``frame_of[page]`` is the frame a page is in, or -1. A page is charged in whole blocks of
    memory, with what it takes to find its rows, and no less than all but the smallest pages take: then ``nbytes`` of
    frames are always enough. When it goes its memory goes back to the system.
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
        self.met = np.zeros(frames, np.int32)  # scratch: tuples by frame, in the online phase at hand
        self._free = np.arange(frames - 1, -1, -1, dtype=np.int32)
        self._held = 0  # pages in frames
        self.nbytes = 0
        self._open(relation)

    @staticmethod
    def room_beside(relation: Relation, pool: int, other_bytes: int) -> float:
        """Pages of ordinary size for which a ``pool`` has room that something else takes so many bytes of."""
        page_bytes = blocks_bytes(relation.nbytes // max(relation.num_pages, 1)) + page_overhead(relation)
        frames_bytes = (pool + pool // _SPARE_SHARE) * _FRAME_BYTES / (page_bytes + _FRAME_BYTES)
        return max(pool - frames_bytes - other_bytes, 0.0) / page_bytes

    def _open(self, relation: Relation) -> None:
        self.relation = relation
        self.frame_of = np.full(relation.num_pages, -1, np.int32)
        self.waiting = np.zeros(relation.num_pages, np.int32)

    @staticmethod
    def page_index_bytes(pages: int) -> int:
        """Bytes of what is noted of a relation's pages, cached or not."""
        return pages * _PAGE_BYTES

    @property
    def frame_index_bytes(self) -> int:
        """Bytes of what is noted of all frames, whether a page is there or not."""
        return self._arena.frames * _FRAME_BYTES

    @property
    def pages(self) -> int:
        """Pages that are cached."""
        return self._held

    def suits(self, relation: Relation, nbytes: int) -> bool:
        """Whether the frames are large and many enough, and not far too many, for a relation and so many bytes."""
        largest = int(relation.table.nbytes.max(initial=0))
        enough = self._most_bytes // 2 <= nbytes <= self._most_bytes and largest <= self._arena.frame_bytes
        return enough and relation.layout == self.relation.layout

    def carry_over(self, relation: Relation, new_numbers: Int64s) -> None:
        """Go on with another version, in which page p has the number ``new_numbers[p]``, or -1 if it is no more.

        Pages that are still the same stay cached; `charge` charges them. Nobody may wait.
        """
        frames = self._frames()
        numbers = new_numbers[self._page[frames]]
        self._free_frames(frames[numbers < 0])
        kept = frames[numbers >= 0]
        self._open(relation)
        self._page[kept] = numbers[numbers >= 0]
        self.frame_of[self._page[kept]] = kept

    def charge(self) -> None:
        """Have the budget charged with what is cached, whatever it was charged with before."""
        self.budget.recharge(_CHARGE, self.nbytes)

    def count_joined(self) -> None:
        """Count what was noted in ``met`` for the worth of pages, and clear it."""
        self._policy.joined(self._worth, self.met)
        self.met.fill(0)

    def met_pages(self) -> PageRun:
        """The pages with tuples in ``met``."""
        return self._run(np.flatnonzero(self.met))

    def awaited_pages(self) -> PageRun:
        """The cached pages that tuples in the stream buffer need."""
        frames = self._frames()
        return self._run(frames[self.waiting[self._page[frames]] > 0])

    def _run(self, frames: npt.NDArray[np.integer]) -> PageRun:
        """The pages in some frames, in the order of their codes."""
        pages = self._page[frames].astype(np.intp)
        pages.sort()
        table = self.relation.table
        nbytes = np.stack([segment.nbytes[pages] for segment in table.segments])
        starts = self._arena.starts(self.frame_of[pages]) + np.cumsum(nbytes, axis=0) - nbytes
        return PageRun(self.relation.layout, self._arena.buffer, pages, starts, table.rows[pages], nbytes)

    def served(self, pages: npt.NDArray[np.intp]) -> None:
        """Those who waited for pages have met them (Algorithm 2, line 14)."""
        frames = self.frame_of[pages]
        cached = frames[frames >= 0]
        worth = self._worth[cached]
        self._policy.awaited(worth, self.waiting[self._page[cached]])
        self._worth[cached] = worth
        self.waiting[pages] = 0

    def choose(self, capacity: int) -> Bools:
        """The pages that are to be cached at the end of a join phase, within ``capacity`` bytes (SSIJ IV-C).

        They are those of the greatest worth among all that are cached and all that are going to be read. Those not
        cached yet are ToKeep; those cached that are not chosen are ToRemove.
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
        """Let all pages go but these."""
        frames = self._frames()
        self._remove(frames[~kept[self._page[frames]]])

    def shrink(self, nbytes: int) -> None:
        """Let the pages of the least worth go until the others take no more than ``nbytes``."""
        surplus = self.nbytes - nbytes
        if surplus <= 0 or self._held == 0:
            return
        frames = self._frames()
        pages = self._page[frames]
        worth = self._worth[frames]
        self._policy.awaited(worth, self.waiting[pages])
        rank = (worth.astype(np.int64) << 32) - pages  # of pages that are worth the same, those behind go first
        least = self._least + self._overhead
        most = min(-(-surplus // least), frames.size)  # pages that can have to go
        if most < frames.size:
            chosen = np.argpartition(rank, most - 1)[:most]
            frames, rank = frames[chosen], rank[chosen]
        frames = frames[np.argsort(rank)]
        costs = np.cumsum(self._cost(self._page[frames]))
        self._remove(frames[: int(np.searchsorted(costs, surplus, "left")) + 1])

    def put(self, run: PageRun, chosen: Bools) -> None:
        """Copy the chosen pages of a run, which are not cached, into the cache."""
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
        """A join phase has ended: utilities count from zero again."""
        self._policy.end_phase(self._worth)

    def _frames(self) -> npt.NDArray[np.intp]:
        """The frames that hold a page."""
        return np.flatnonzero(self._page >= 0)

    def _cost(self, pages: npt.NDArray[np.integer]) -> Int64s:
        """What pages are charged with: as `choose_kept` has it."""
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
