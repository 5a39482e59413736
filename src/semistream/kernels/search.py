"""Search for codes in ascending arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Bools, Int64s
from semistream.kernels.compiler import part, subroutine

_NEAR = 8  # values that `find_from` checks one by one before it falls back to `find`


def positions_of(codes: Int64s, values: Int64s) -> tuple[Bools, Int64s]:
    """Return a mask of the codes present in the ascending ``values``, and the position of each present code.

    >>> present, at = positions_of(np.array([5, 2, 9]), np.array([2, 5, 7]))
    >>> present.tolist(), at[present].tolist()
    ([True, True, False], [1, 0])
    """
    if values.size == 0:
        return np.zeros(codes.size, np.bool_), np.zeros(codes.size, np.int64)
    at = np.minimum(np.searchsorted(values, codes), values.size - 1)
    return values[at] == codes, at


@part
def lower_bound(values: npt.NDArray[Any], low: int, high: int, code: int) -> int:
    """Return the first position in ``values[low:high]`` whose value is not less than ``code``."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low


@part
def upper_bound(values: npt.NDArray[Any], low: int, high: int, code: int) -> int:
    """Return the first position in ``values[low:high]`` whose value is greater than ``code``."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= code:
            low = middle + 1
        else:
            high = middle
    return low


@subroutine
def find(values: npt.NDArray[Any], low: int, high: int, code: int) -> int:
    """Return the first position in ``values[low:high]`` whose value is not less than ``code``.

    The search starts where ``code`` would be if the values were evenly spread, which is exact for dense keys, and
    gallops from there.
    """
    if low >= high or values[low] >= code:
        return low
    if values[high - 1] < code:
        return high
    span = max(np.float64(values[high - 1]) - np.float64(values[low]), 1.0)
    guess = low + int((np.float64(code) - np.float64(values[low])) / span * (high - 1 - low))
    guess = min(max(guess, low), high - 1)
    step = 1
    if values[guess] >= code:
        # values[low] < code <= values[guess]
        high = guess
        guess -= 1
        while guess > low and values[guess] >= code:
            high = guess
            guess -= step
            step += step
        low = max(guess, low)
    else:
        # values[guess] < code <= values[high - 1]
        low = guess
        guess += 1
        high -= 1
        while guess < high and values[guess] < code:
            low = guess
            guess += step
            step += step
        high = min(guess, high)
    # values[low] < code <= values[high]
    while high - low > 1:
        middle = (low + high) >> 1
        if values[middle] < code:
            low = middle
        else:
            high = middle
    return high


@part
def find_from(values: npt.NDArray[Any], low: int, high: int, code: int) -> int:
    """Return the same position as `find`; faster when it is near ``low``."""
    near = min(low + _NEAR, high)
    while low < near and values[np.uint64(low)] < code:
        low += 1
    return find(values, low, high, code) if low == near else low
