"""Columns of stream tuples in few bytes: each level has its values as distances from a base, as wide as they must be.

Levels stand in one block of bytes, of which kernels get views of every width. A tuple's number is that of its level,
counted since the start, in the upper 32 bits, and its position in the level below. ``first`` is the number of the first
level that there is; ``at[l]`` is the byte where the values of the l-th one from there start, ``widths[l]`` their width
(0: all are the base), ``bases[l]`` what is added to them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.types import Bytes, Int64s


@njit(cache=True, nogil=True)
def value_span(values: npt.NDArray[Any]) -> tuple[np.int64, np.uint64]:
    """The least of some integers, and how far the greatest is from it."""
    if values.size == 0:
        return np.int64(0), np.uint64(0)
    least = most = np.int64(values[0])
    for value in values:
        least, most = min(least, np.int64(value)), max(most, np.int64(value))
    return least, np.uint64(most) - np.uint64(least)


@njit(cache=True, nogil=True)
def pack_rows(values: npt.NDArray[Any], order: npt.NDArray[Any], base: int, out: npt.NDArray[Any]) -> None:
    """The rows ``order`` of a column as distances from ``base``."""
    for i in range(order.size):
        out[i] = np.int64(values[order[i]]) - base


@njit(inline="always")
def _copy(source: npt.NDArray[Any], start: int, base: int, numbers: Int64s, i: int, out: npt.NDArray[Any]) -> int:
    """Values of tuples from ``i`` on that are of the same level; gives how far."""
    level = numbers[i] >> 32
    origin = start - (level << 32)
    while i < numbers.size and numbers[i] >> 32 == level:
        out[i] = np.int64(source[np.uint64(origin + numbers[i])]) + base
        i += 1
    return i


@njit(cache=True, nogil=True)
def take_packed(
    block: Bytes,
    first: int,
    at: Int64s,
    widths: Int64s,
    bases: Int64s,
    numbers: Int64s,
    out: npt.NDArray[Any],
) -> None:
    """The values of some tuples; it is fast where tuples of a level follow each other."""
    halves, words, longs = block.view(np.uint16), block.view(np.uint32), block.view(np.int64)
    i = 0
    while i < numbers.size:
        level = (numbers[i] >> 32) - first
        start, width, base = at[level], widths[level], bases[level]
        if width == 8:
            i = _copy(longs, start >> 3, base, numbers, i, out)
        elif width == 4:
            i = _copy(words, start >> 2, base, numbers, i, out)
        elif width == 2:
            i = _copy(halves, start >> 1, base, numbers, i, out)
        elif width == 1:
            i = _copy(block, start, base, numbers, i, out)
        else:
            while i < numbers.size and (numbers[i] >> 32) - first == level:
                out[i] = base
                i += 1


@njit(cache=True, nogil=True)
def mark_tuples(block: Bytes, first: int, at: Int64s, numbers: Int64s) -> None:
    """Set the flags of some tuples, a byte each."""
    for number in numbers:
        block[np.uint64(at[(number >> 32) - first] + (number & 0xFFFFFFFF))] = 1
