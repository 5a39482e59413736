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

from semistream.kernels.types import Bools, Bytes, Int32s, Int64s


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


@njit(cache=True, nogil=True)
def pack_binary(
    offsets: npt.NDArray[Any], data: Bytes, order: npt.NDArray[Any], out_offsets: npt.NDArray[Any], out: Bytes
) -> None:
    """The rows ``order`` of a column of strings or bytes: where each starts and the last one ends, and the bytes."""
    end = np.int64(0)
    out_offsets[0] = 0
    for i in range(order.size):
        begin, stop = offsets[order[i]], offsets[order[i] + 1]
        for byte in range(begin, stop):
            out[np.uint64(end)] = data[np.uint64(byte)]
            end += 1
        out_offsets[i + 1] = end


@njit(cache=True, nogil=True)
def take_lengths(block: Bytes, first: int, at: Int64s, numbers: Int64s, out: npt.NDArray[Any]) -> np.int64:
    """The offsets that some tuples' strings will have, one behind the other; gives the bytes of all."""
    words = block.view(np.uint32)
    total = np.int64(0)
    out[0] = 0
    for i in range(numbers.size):
        number = numbers[i]
        row = np.uint64((at[(number >> 32) - first] >> 2) + (number & 0xFFFFFFFF))
        total += np.int64(words[row + np.uint64(1)]) - np.int64(words[row])
        out[i + 1] = total
    return total


@njit(cache=True, nogil=True)
def take_bytes(
    block: Bytes, first: int, at: Int64s, data_at: Int64s, numbers: Int64s, offsets: npt.NDArray[Any], out: Bytes
) -> None:
    """The bytes of the strings that `take_lengths` has measured."""
    words = block.view(np.uint32)
    for i in range(numbers.size):
        level = (numbers[i] >> 32) - first
        row = np.uint64((at[level] >> 2) + (numbers[i] & 0xFFFFFFFF))
        source, target = data_at[level] + np.int64(words[row]), np.int64(offsets[i])
        for byte in range(np.int64(offsets[i + 1]) - target):
            out[np.uint64(target + byte)] = block[np.uint64(source + byte)]


@njit(cache=True, nogil=True)
def same_bytes(
    block: Bytes,
    first: int,
    at: Int64s,
    data_at: Int64s,
    numbers: Int64s,
    run: Bytes,
    offsets: npt.NDArray[Any],
    starts: Int64s,
    data_starts: Int64s,
    page: Int32s,
    row: Int32s,
    out: Bools,
) -> bool:
    """For each pair, whether a tuple's string is that of a row of R, whose column stands in ``run`` page by page as in
    `semistream.kernels.gather`; gives whether all are.
    """
    words = block.view(np.uint32)
    every = True
    for i in range(numbers.size):
        level = (numbers[i] >> 32) - first
        mine = np.uint64((at[level] >> 2) + (numbers[i] & 0xFFFFFFFF))
        begin, size = np.int64(words[mine]), np.int64(words[mine + np.uint64(1)]) - np.int64(words[mine])
        other = np.uint64(starts[page[i]] + row[i])
        same = np.int64(offsets[other + np.uint64(1)]) - np.int64(offsets[other]) == size
        if same:
            left, right = data_at[level] + begin, data_starts[page[i]] + np.int64(offsets[other])
            for byte in range(size):
                if block[np.uint64(left + byte)] != run[np.uint64(right + byte)]:
                    same = False
                    break
        out[i] = same
        every &= same
    return every
