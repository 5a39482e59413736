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

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.byte_strings import address_of, are_same, copy_bytes


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


# Strings of a level stand one behind the other, after the bytes that all of them begin with. Where these start is
# ``data_at[l]``, how many they are ``prefixes[l]``. ``at``, ``widths`` and ``bases`` are those of the offsets; if a
# width is 0 there are none, and each string has so many bytes of its own as the base says.


@njit(cache=True, nogil=True)
def string_shape(offsets: npt.NDArray[Any], data: Bytes) -> tuple[np.int64, np.int64]:
    """How many bytes some strings have in common at their beginning, and how many each has besides; -1 if it varies."""
    if offsets.size < 2:
        return np.int64(0), np.int64(-1)
    begin = np.int64(offsets[0])
    length = prefix = np.int64(offsets[1]) - begin
    alike = True
    for i in range(1, offsets.size - 1):
        start, size = np.int64(offsets[i]), np.int64(offsets[i + 1]) - np.int64(offsets[i])
        alike &= size == length
        prefix = min(prefix, size)
        same = np.int64(0)
        while same < prefix and data[np.uint64(start + same)] == data[np.uint64(begin + same)]:
            same += 1
        prefix = same
    return prefix, length - prefix if alike else np.int64(-1)


@njit(cache=True, nogil=True)
def pack_strings(
    offsets: npt.NDArray[Any],
    data: Bytes,
    order: npt.NDArray[Any],
    prefix: int,
    out_offsets: npt.NDArray[Any],
    out: Bytes,
) -> None:
    """The rows ``order`` of a column of strings: the prefix of all, and the bytes that each has besides. Where there is
    room for offsets, it is noted where each starts and the last one ends.
    """
    source, target = address_of(data), address_of(out)
    copy_bytes(target, source + np.int64(offsets[0]), prefix)
    target += prefix
    end = np.int64(0)
    if out_offsets.size:
        out_offsets[0] = 0
    for i in range(order.size):
        begin, stop = np.int64(offsets[order[i]]) + prefix, np.int64(offsets[order[i] + 1])
        copy_bytes(target + end, source + begin, stop - begin)
        end += stop - begin
        if out_offsets.size:
            out_offsets[i + 1] = end


@njit(cache=True, nogil=True)
def move_offsets(block: Bytes, source: int, count: int, change: int, target: int) -> None:
    """Add ``change`` to ``count`` offsets from byte ``source`` on, and let them stand at ``target``, not behind it."""
    words = block.view(np.uint32)
    begin, to = source >> 2, target >> 2
    for i in range(count):
        words[to + i] = np.int64(words[begin + i]) + change


@njit(inline="always")
def _own(words: npt.NDArray[Any], at: int, width: int, base: int, row: int) -> tuple[Any, Any]:
    """Where the bytes that a string has besides the prefix start among those of its level, and how many they are."""
    if width == 0:
        return base * row, base
    i = np.uint64((at >> 2) + row)
    return np.int64(words[i]), np.int64(words[i + np.uint64(1)]) - np.int64(words[i])


@njit(cache=True, nogil=True)
def take_lengths(
    block: Bytes,
    first: int,
    at: Int64s,
    widths: Int64s,
    bases: Int64s,
    prefixes: Int64s,
    numbers: Int64s,
    out: npt.NDArray[Any],
) -> np.int64:
    """The offsets that some tuples' strings will have, one behind the other; gives the bytes of all."""
    words = block.view(np.uint32)
    total = np.int64(0)
    out[0] = 0
    for i in range(numbers.size):
        level = (numbers[i] >> 32) - first
        _, size = _own(words, at[level], widths[level], bases[level], numbers[i] & 0xFFFFFFFF)
        total += prefixes[level] + size
        out[i + 1] = total
    return total


@njit(cache=True, nogil=True)
def take_bytes(
    block: Bytes,
    first: int,
    at: Int64s,
    widths: Int64s,
    bases: Int64s,
    data_at: Int64s,
    prefixes: Int64s,
    numbers: Int64s,
    out: Bytes,
) -> None:
    """The bytes of the strings that `take_lengths` has measured."""
    words, here, target = block.view(np.uint32), address_of(block), address_of(out)
    for i in range(numbers.size):
        level = (numbers[i] >> 32) - first
        begin, size = _own(words, at[level], widths[level], bases[level], numbers[i] & 0xFFFFFFFF)
        source, prefix = here + data_at[level], prefixes[level]
        copy_bytes(target, source, prefix)
        copy_bytes(target + prefix, source + prefix + begin, size)
        target += prefix + size


@njit(cache=True, nogil=True)
def same_bytes(
    block: Bytes,
    first: int,
    at: Int64s,
    widths: Int64s,
    bases: Int64s,
    data_at: Int64s,
    prefixes: Int64s,
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
    words, here, there = block.view(np.uint32), address_of(block), address_of(run)
    every = True
    for i in range(numbers.size):
        level = (numbers[i] >> 32) - first
        begin, size = _own(words, at[level], widths[level], bases[level], numbers[i] & 0xFFFFFFFF)
        source, prefix = here + data_at[level], prefixes[level]
        other = np.uint64(starts[page[i]] + row[i])
        theirs = there + data_starts[page[i]] + np.int64(offsets[other])
        same = np.int64(offsets[other + np.uint64(1)]) - np.int64(offsets[other]) == prefix + size
        if same:
            same = are_same(source, theirs, prefix) and are_same(source + prefix + begin, theirs + prefix, size)
        out[i] = same
        every &= same
    return every


@njit(cache=True, nogil=True)
def position_of(block: Bytes, at: int, narrow: bool, rows: int, sought: int, behind: bool) -> int:
    """How many of ``rows`` ascending codes are less than one, or less or equal if that is to be ``behind``.

    They stand from the byte ``at`` on, as distances of four bytes if they are ``narrow``, else in eight; what is sought
    is a distance too.
    """
    low, high = 0, rows
    short, long = block.view(np.uint32), block.view(np.int64)
    first = at // 4 if narrow else at // 8
    while low < high:
        middle = (low + high) // 2
        code = np.int64(short[first + middle]) if narrow else long[first + middle]
        if code < sought or (behind and code == sought):
            low = middle + 1
        else:
            high = middle
    return low
