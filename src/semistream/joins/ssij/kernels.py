"""Kernels of SSIJ: look up stream tuples in the page table, choose the pages to cache, and copy them."""

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.compiler import kernel, part, subroutine
from semistream.kernels.search import find_from

NOWHERE = 0  # no page may hold a match
CACHED = 1  # all pages that may hold a match are in memory
WAITS = 2  # at least one of them is not


@kernel
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
    """Set the ``outcome`` of each tuple, which asks for codes ``low`` to ``high``; return the newly awaited pages.

    ``low`` ascends, and so do the pages' ``first_code`` and ``last_code``, so one walk over both serves all tuples.
    ``frame_of[page]`` is negative for a page not in memory. A tuple whose pages are all in memory is counted in
    ``met`` for each of their frames. A tuple that must wait is counted in ``waiting`` for each of its pages, also those
    in memory: it is joined with all of them later, and with none now (SSIJ IV-B).
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


@kernel
def next_wanted(waiting: Int32s, begin: int, out: npt.NDArray[np.intp]) -> int:
    """Write the pages from ``begin`` on that tuples wait for, as many as ``out`` holds; return their number."""
    found = 0
    for page in range(begin, waiting.size):
        if waiting[page] > 0:
            if found == out.size:
                break
            out[found] = page
            found += 1
    return found


@part
def _cost(nbytes: int, block: int, least: int, overhead: int) -> int:
    return max((nbytes + block - 1) // block * block, least) + overhead


@subroutine
def _cost_above(worth: Int32s, cut: int, nbytes: Int64s, block: int, least: int, overhead: int) -> int:
    """Return the total cost of the pages worth more than ``cut``."""
    total = 0
    for page in range(worth.size):
        if worth[page] > cut:
            total += _cost(nbytes[page], block, least, overhead)
    return total


@kernel(allocates=True)
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

    Pages with a negative worth are ignored. A page costs its bytes in whole blocks, at least ``least``, plus
    ``overhead``. If pages of equal worth do not all fit, those in memory (``frame_of`` not negative) come first, then
    those with lower numbers. Bisection finds the worth from which all pages fit, so the kernel allocates nothing.
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


@kernel(allocates=True)
def copy_pages(
    source: Bytes, starts: Int64s, nbytes: npt.NDArray[np.int64], target: Bytes, target_starts: Int64s
) -> None:
    """Copy byte ranges of one buffer into another."""
    for i in range(starts.size):
        begin, end = starts[i], starts[i] + nbytes[i]
        target[target_starts[i] : target_starts[i] + nbytes[i]] = source[begin:end]
