"""Pack columns of stream tuples: each level stores its values as distances from a base, in the narrowest width.

All levels are in one block of bytes, which kernels view in every width. A tuple's number has its level's number in the
upper 32 bits and its position in the level in the lower 32. ``first`` is the number of the oldest level. For the l-th
level from there, ``at[l]`` is the byte where the values start, ``widths[l]`` their width in bytes (0: all equal the
base), and ``bases[l]`` the base added to each.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.byte_strings import address_of, are_same, copy_bytes
from semistream.kernels.compiler import kernel, part


@kernel
def value_span(values: npt.NDArray[Any]) -> tuple[np.int64, np.uint64]:
    """Return the minimum of some integers, and the maximum minus the minimum."""
    if values.size == 0:
        return np.int64(0), np.uint64(0)
    least = most = np.int64(values[0])
    for value in values:
        least, most = min(least, np.int64(value)), max(most, np.int64(value))
    return least, np.uint64(most) - np.uint64(least)


@kernel
def pack_rows(values: npt.NDArray[Any], order: npt.NDArray[Any], base: int, out: npt.NDArray[Any]) -> None:
    """Write a column's rows, in the given order, as distances from ``base``."""
    for i in range(order.size):
        out[i] = np.int64(values[order[i]]) - base


@part
def _copy(source: npt.NDArray[Any], start: int, base: int, numbers: Int64s, i: int, out: npt.NDArray[Any]) -> int:
    """Copy the values of tuples from ``i`` on while they are of one level; return the index after the last."""
    level = numbers[i] >> 32
    origin = start - (level << 32)
    while i < numbers.size and numbers[i] >> 32 == level:
        out[i] = np.int64(source[np.uint64(origin + numbers[i])]) + base
        i += 1
    return i


@kernel
def take_packed(
    block: Bytes,
    first: int,
    at: Int64s,
    widths: Int64s,
    bases: Int64s,
    numbers: Int64s,
    out: npt.NDArray[Any],
) -> None:
    """Copy the values of some tuples; fast if tuples of a level are adjacent."""
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


@kernel
def mark_tuples(block: Bytes, first: int, at: Int64s, numbers: Int64s) -> None:
    """Set the flags, one byte each, of some tuples."""
    for number in numbers:
        block[np.uint64(at[(number >> 32) - first] + (number & 0xFFFFFFFF))] = 1


# A level's strings are stored as their common prefix, ``prefixes[l]`` bytes at ``data_at[l]``, followed by the
# remaining bytes of each string. ``at``, ``widths`` and ``bases`` describe the offsets of these remainders; a width of
# 0 means that there are no offsets and that every remainder has ``bases[l]`` bytes.


@kernel
def string_shape(offsets: npt.NDArray[Any], data: Bytes) -> tuple[np.int64, np.int64]:
    """Return the length of the strings' common prefix, and the bytes of each after it; -1 if lengths differ."""
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


@kernel
def pack_strings(
    offsets: npt.NDArray[Any],
    data: Bytes,
    order: npt.NDArray[Any],
    prefix: int,
    out_offsets: npt.NDArray[Any],
    out: Bytes,
) -> None:
    """Write a column's strings in the given order of rows: the common prefix once, then the remainder of each.

    If ``out_offsets`` is not empty, it takes the start of each remainder and the end of the last.
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


@kernel
def move_offsets(block: Bytes, source: int, count: int, change: int, target: int) -> None:
    """Copy ``count`` offsets from byte ``source`` to ``target``, not after it, adding ``change`` to each."""
    words = block.view(np.uint32)
    begin, to = source >> 2, target >> 2
    for i in range(count):
        words[to + i] = np.int64(words[begin + i]) + change


@part
def _own(words: npt.NDArray[Any], at: int, width: int, base: int, row: int) -> tuple[Any, Any]:
    """Return the start of a string's remainder among those of its level, and its length."""
    if width == 0:
        return base * row, base
    i = np.uint64((at >> 2) + row)
    return np.int64(words[i]), np.int64(words[i + np.uint64(1)]) - np.int64(words[i])


@kernel
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
    """Write the offsets of some tuples' strings, laid out one after the other; return their total bytes."""
    words = block.view(np.uint32)
    total = np.int64(0)
    out[0] = 0
    for i in range(numbers.size):
        level = (numbers[i] >> 32) - first
        _, size = _own(words, at[level], widths[level], bases[level], numbers[i] & 0xFFFFFFFF)
        total += prefixes[level] + size
        out[i + 1] = total
    return total


@kernel
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
    """Copy the bytes of the strings measured by `take_lengths`."""
    words, here, target = block.view(np.uint32), address_of(block), address_of(out)
    for i in range(numbers.size):
        level = (numbers[i] >> 32) - first
        begin, size = _own(words, at[level], widths[level], bases[level], numbers[i] & 0xFFFFFFFF)
        source, prefix = here + data_at[level], prefixes[level]
        copy_bytes(target, source, prefix)
        copy_bytes(target + prefix, source + prefix + begin, size)
        target += prefix + size


@kernel
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
    """Compare a tuple's string with a row's string of R, pair by pair; return True if all pairs are equal.

    R's column lies in ``run`` page by page, as in `semistream.relation.read.kernels.gather`.
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


@kernel
def position_of(block: Bytes, at: int, narrow: bool, rows: int, sought: int, behind: bool) -> int:
    """Return the number of ``rows`` ascending codes less than ``sought``, or less than or equal to it if ``behind``.

    The codes start at byte ``at``: distances of 4 bytes if ``narrow``, else of 8. ``sought`` is a distance too.
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
