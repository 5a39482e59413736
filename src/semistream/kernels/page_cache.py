"""Choose which pages stay in memory, and copy them there."""

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.types import Bools, Bytes, Int32s, Int64s


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
