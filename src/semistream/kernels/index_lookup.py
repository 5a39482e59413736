"""Look stream tuples up in the page table, and tell those whose pages are all in memory from those that must wait."""

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.search import find_from
from semistream.kernels.types import Int32s, Int64s

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
