"""Look stream tuples up in the page table, and tell those whose pages are all in memory from those that must wait.

Choose which pages stay in memory, and copy them there.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.search import find_from

NOWHERE = 0  # no page may hold a partner
CACHED = 1  # all pages that may hold one are in memory
WAITS = 2  # one of them is not


@njit(cache=True, nogil=True)
def look_up(
    low: Int64s,
    high: Int64s,
    first_code: Int64s,
    last_code: Int64s,
    frame_of: Int32s,
    waiting: Int32s,
    met: Int32s,
    outcome: npt.NDArray[np.int8],
) -> int:
    """For each tuple, which asks for the codes from ``low`` to ``high``, what can be done with it now (SSIJ IV-B).

    ``low`` ascends, and so do the pages with ``first_code`` and ``last_code``: one walk over both serves all tuples.
    ``frame_of[page]`` is negative for a page that is not in memory. A tuple whose pages are all there is counted in
    ``met`` by their frames, one that must wait in ``waiting`` by its pages, those in memory too: it is joined with all
    of them later, and with none now. Gives how many pages came to be waited for that were not before.
    """
    pages = first_code.size
    page = 0
    awaited = 0
    for i in range(low.size):
        page = find_from(last_code, page, pages, low[i])
        end = page
        cached = True
        while end < pages and first_code[end] <= high[i]:
            cached = cached and frame_of[end] >= 0
            end += 1
        if end == page:
            outcome[i] = NOWHERE
        elif cached:
            outcome[i] = CACHED
            for needed in range(page, end):
                met[frame_of[needed]] += 1
        else:
            outcome[i] = WAITS
            for needed in range(page, end):
                awaited += waiting[needed] == 0
                waiting[needed] += 1
    return awaited


@njit(cache=True, nogil=True)
def next_wanted(waiting: Int32s, begin: int, out: npt.NDArray[np.intp]) -> int:
    """The pages from ``begin`` on that some tuple waits for, as many as ``out`` holds; gives how many these are."""
    found = 0
    for page in range(begin, waiting.size):
        if waiting[page] > 0:
            if found == out.size:
                break
            out[found] = page
            found += 1
    return found


@njit(inline="always")
def _cost(nbytes: int, block: int, least: int, overhead: int) -> int:
    return max((nbytes + block - 1) // block * block, least) + overhead


@njit(cache=True, nogil=True)
def _cost_above(worth: Int32s, cut: int, nbytes: Int64s, block: int, least: int, overhead: int) -> int:
    """What all pages worth more than ``cut`` cost."""
    total = 0
    for page in range(worth.size):
        if worth[page] > cut:
            total += _cost(nbytes[page], block, least, overhead)
    return total


@njit(cache=True, nogil=True)
def choose_kept(
    worth: Int32s,
    frame_of: Int32s,
    nbytes: Int64s,
    block: int,
    least: int,
    overhead: int,
    capacity: int,
    kept: Bools,
) -> None:
    """Set ``kept`` for the pages of the greatest ``worth`` that together cost no more than ``capacity``.

    Pages with a negative worth do not take part. A page costs its bytes in whole blocks, at least ``least``, and
    ``overhead``. Of pages that are worth the same and do not all fit, those in memory (``frame_of`` is not negative)
    come first, then those with lower numbers, as far as they fit. It takes no memory: the worth from which on all pages
    fit is found by bisection.
    """
    low, high = np.int64(-1), np.int64(worth.max()) if worth.size else np.int64(-1)
    while low < high:
        cut = (low + high) >> 1
        if _cost_above(worth, cut, nbytes, block, least, overhead) <= capacity:
            high = cut
        else:
            low = cut + 1
    spare = capacity - _cost_above(worth, low, nbytes, block, least, overhead)
    for page in range(worth.size):
        kept[page] = worth[page] > low
    if low < 0:
        return
    for in_memory in (True, False):
        for page in range(worth.size):
            if worth[page] == low and (frame_of[page] >= 0) == in_memory:
                cost = _cost(nbytes[page], block, least, overhead)
                if cost <= spare:
                    kept[page] = True
                    spare -= cost


@njit(cache=True, nogil=True)
def copy_pages(
    source: Bytes, starts: Int64s, nbytes: npt.NDArray[np.int64], target: Bytes, target_starts: Int64s
) -> None:
    """Copy ranges of one buffer into another."""
    for i in range(starts.size):
        begin, end = starts[i], starts[i] + nbytes[i]
        target[target_starts[i] : target_starts[i] + nbytes[i]] = source[begin:end]
