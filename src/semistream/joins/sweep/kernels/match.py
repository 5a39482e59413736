"""Match the pages of a run with stream tuples that stand in several sorted levels of one array."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.search import find, find_from, lower_bound

_GREATEST = np.iinfo(np.int64).max
_NEAR = 8  # codes that are looked at one by one before the search jumps
_CONSECUTIVE = -1  # instead of the size of stretches


@njit(inline="always")
def _first_at_least(codes: npt.NDArray[Any], base: int, low: int, high: int, code: int) -> int:
    """First position in ``codes[low:high]``, which are distances from ``base``, that is not before ``code``."""
    if base == 0:
        return find(codes, low, high, code)
    if code <= base:
        return low
    distance = np.uint64(code) - np.uint64(base)
    return find(codes, low, high, np.int64(min(distance, np.uint64(_GREATEST))))


@njit(inline="always")
def _first_from(codes: npt.NDArray[Any], base: int, low: int, code: int) -> int:
    """Like `_first_at_least` in all codes from ``low`` on, where the position is mostly near ``low``."""
    near = min(low + _NEAR, codes.size)
    while low < near and np.int64(codes[np.uint64(low)]) + base < code:
        low += 1
    return _first_at_least(codes, base, low, codes.size, code) if low == near else low


@njit(inline="always")
def _is_consecutive(run: Int64s, start: int, end: int) -> bool:
    """Whether the codes of a page follow each other without a gap, and each comes once."""
    least = run[start]
    if np.uint64(run[end - 1]) - np.uint64(least) != np.uint64(end - 1 - start):
        return False
    difference = np.int64(0)
    for i in range(end - start):
        difference |= run[start + i] ^ (least + i)
    return difference == 0


@njit(inline="always")
def _bucket(code: int, least: int, bucket_shift: int) -> np.uint64:
    return (np.uint64(code) - np.uint64(least)) >> np.uint64(bucket_shift)


@njit(inline="always")
def _fill_table(run: Int64s, start: int, end: int, table: Int32s) -> int:
    """For each of some equal stretches of a page's codes, the first row in it or behind it; gives their size in bits.

    There are about two for each row, so that few rows share one if codes are spread evenly: dense ones, or hashes.
    """
    least, most = run[start], run[end - 1]
    bucket_shift = 0
    while _bucket(most, least, bucket_shift) >= np.uint64(min(table.size, 2 * (end - start))):
        bucket_shift += 1
    filled = np.uint64(0)
    for row in range(start, end):
        bucket = _bucket(run[np.uint64(row)], least, bucket_shift)
        while filled <= bucket:
            table[filled] = row - start
            filled += np.uint64(1)
    return bucket_shift


@njit(nogil=True)
def _match_level(
    run: Int64s,
    start: int,
    end: int,
    codes: npt.NDArray[Any],
    base: int,
    shift: int,
    position: int,
    cursor: int,
    resume: int,
    table: Int32s,
    bucket_shift: int,
    page: int,
    number: int,
    found: int,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> tuple[int, int, int]:
    """Pairs of a level and a page; gives how many there are now, where the level stands, and the row to go on with."""
    first = run[start]
    least, most = first >> shift, run[end - 1] >> shift
    if position < 0:
        position = cursor
        if position > 0 and np.int64(codes[position - 1]) + base >= least:
            position = _first_at_least(codes, base, 0, position, least)
        else:
            position = _first_from(codes, base, position, least)
    if bucket_shift == _CONSECUTIVE:
        while position < codes.size:
            code = np.int64(codes[np.uint64(position)]) + base
            if code > most:
                break
            if found == out_row.size:
                return found, position, code - least
            at = np.uint64(found)
            out_position[at] = number + position
            out_page[at] = page
            out_row[at] = code - least
            found += 1
            position += 1
    while bucket_shift != _CONSECUTIVE and position < codes.size:
        code = np.int64(codes[np.uint64(position)]) + base
        if code > most:
            break
        begin = max(code << shift, first)  # the least code that is the same without the bits that are left out
        match = find_from(run, start + table[_bucket(begin, first, bucket_shift)], end, begin)
        if resume >= 0:
            match, resume = start + resume, -1
        while match < end and run[np.uint64(match)] >> shift == code:
            if found == out_row.size:
                return found, position, match - start
            at = np.uint64(found)
            out_position[at] = number + position
            out_page[at] = page
            out_row[at] = match - start
            found += 1
            match += 1
        position += 1
    # The next page may hold more rows of this one's last code: its tuples are looked at again.
    while position > 0 and np.int64(codes[position - 1]) + base >= most:
        position -= 1
    return found, position, -1


@njit(cache=True, nogil=True)
def match_levels(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    passed: Int64s,
    block: Bytes,
    at: Int64s,
    narrow: Bools,
    bases: Int64s,
    shift: int,
    sizes: Int64s,
    numbers: Int64s,
    enters_at: Int64s,
    leaves_at: Int64s,
    flags_at: Int64s,
    level_cursors: Int64s,
    table: Int32s,
    cursor: Int64s,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> int:
    """Pairs of (number of a tuple, row of a page) with equal codes, until done or the output is full.

    Level l has ``sizes[l]`` ascending codes at byte ``at[l]`` of ``block``: words of 32 bits if it is ``narrow``, else
    of 64, to which its base is added. The lowest ``shift`` bits of codes are left out there, and not compared. Tuples
    are numbered from ``numbers[l]`` on. A level meets the pages of the run that are ``passed`` before it leaves, or
    none if it enters after the first. Where there are ``flags_at``, tuples that are found get the flag at their
    position from there.

    ``level_cursors`` says where in each level the last page left off, also that of the run before: pages that follow
    each other in code order, as they mostly do, find their tuples at once. A row is where its code says in a page of
    codes that follow each other; else ``table`` says where to look. ``cursor`` is (page, level, position, row): where
    to go on; the match is over when ``cursor[0] == rows.size``.
    """
    words, longs = block.view(np.uint32), block.view(np.int64)
    level_pages = np.zeros(at.size, np.int64)
    for level in range(at.size):
        if enters_at[level] <= passed[0]:
            level_pages[level] = lower_bound(passed, 0, passed.size, leaves_at[level])
    found = 0
    first_level, position, resume = cursor[1], cursor[2], cursor[3]
    for page in range(cursor[0], rows.size):
        start, end = code_starts[page], code_starts[page] + rows[page]
        if shift == 0 and _is_consecutive(run, start, end):
            bucket_shift = _CONSECUTIVE
        else:
            bucket_shift = _fill_table(run, start, end, table)
        for level in range(first_level, at.size):
            if page >= level_pages[level]:
                continue
            before = found
            if narrow[level]:
                begin = at[level] >> 2
                found, position, resume = _match_level(
                    run, start, end, words[begin : begin + sizes[level]], bases[level], shift, position,
                    level_cursors[level], resume, table, bucket_shift, page, numbers[level], found,
                    out_position, out_page, out_row,
                )  # fmt: skip
            else:
                begin = at[level] >> 3
                found, position, resume = _match_level(
                    run, start, end, longs[begin : begin + sizes[level]], bases[level], shift, position,
                    level_cursors[level], resume, table, bucket_shift, page, numbers[level], found,
                    out_position, out_page, out_row,
                )  # fmt: skip
            if flags_at.size:
                flags = flags_at[level] - numbers[level]
                for i in range(before, found):
                    block[np.uint64(flags + out_position[np.uint64(i)])] = 1
            if resume >= 0:
                cursor[0], cursor[1], cursor[2], cursor[3] = page, level, position, resume
                return found
            level_cursors[level] = position
            position = np.int64(-1)
        first_level = 0
    cursor[0], cursor[1], cursor[2], cursor[3] = rows.size, 0, -1, -1
    return found


@njit(cache=True, nogil=True)
def flag_pages(
    codes: npt.NDArray[Any],
    base: int,
    shift: int,
    first_codes: Int64s,
    last_codes: Int64s,
    places: Int32s,
    flags: Bools,
) -> None:
    """Set ``flags`` at the places of pages that may hold any of some codes; codes and pages are ascending.

    Codes are given as distances from ``base``, without their lowest ``shift`` bits. It walks codes and pages together,
    and jumps over pages where codes are few.
    """
    page, pages = 0, first_codes.size
    flagged = -np.int64(_GREATEST) - 1  # before this all is done
    for distance in codes:
        code = np.int64(distance) + base
        if code < flagged:
            continue
        page = find_from(last_codes, page, pages, code << shift)
        holding = page
        while holding < pages and first_codes[holding] >> shift <= code:
            flags[places[holding]] = True
            if code < last_codes[holding] >> shift:
                flagged = last_codes[holding] >> shift  # codes before it are in no other page
                break
            holding += 1
