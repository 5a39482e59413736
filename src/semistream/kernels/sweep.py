"""Match the pages of a run with stream tuples that stand in several sorted levels of one array."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.search import find, find_from
from semistream.kernels.types import Bools, Bytes, Int32s, Int64s

_GREATEST = np.iinfo(np.int64).max


@njit(inline="always")
def _first_at_least(codes: npt.NDArray[Any], base: int, low: int, high: int, code: int) -> int:
    """First position in ``codes[low:high]``, which are distances from ``base``, that is not before ``code``."""
    if base == 0:
        return find(codes, low, high, code)
    if code <= base:
        return low
    distance = np.uint64(code) - np.uint64(base)
    return find(codes, low, high, np.int64(min(distance, np.uint64(_GREATEST))))


@njit(nogil=True)
def _match_level(
    run: Int64s,
    start: int,
    end: int,
    codes: npt.NDArray[Any],
    base: int,
    position: int,
    cursor: int,
    resume: int,
    table: Int32s,
    tabled: bool,
    page: int,
    number: int,
    found: int,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> tuple[int, int, int]:
    """Pairs of a level and a page; gives how many there are now, where the level stands, and the row to go on with."""
    least, most = run[start], run[end - 1]
    if position < 0:
        position = cursor
        if position > 0 and np.int64(codes[position - 1]) + base >= least:
            position = _first_at_least(codes, base, 0, position, least)
        else:
            while position < codes.size and np.int64(codes[position]) + base < least:
                position += 1
    row = start
    while position < codes.size:
        code = np.int64(codes[np.uint64(position)]) + base
        if code > most:
            break
        row = start + table[np.uint64(code - least)] if tabled else find_from(run, row, end, code)
        match = row
        if resume >= 0:
            match, resume = start + resume, -1
        while match < end and run[np.uint64(match)] == code:
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


@njit(inline="always")
def _fill_table(run: Int64s, start: int, end: int, table: Int32s) -> None:
    """For each code from a page's first to its last one, the first row with it or with the code after it."""
    row = end - 1
    least = run[start]
    for i in range(run[end - 1] - least, -1, -1):
        while row > start and run[row - 1] >= least + i:
            row -= 1
        table[i] = row - start


@njit(cache=True, nogil=True)
def match_levels(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    block: Bytes,
    at: Int64s,
    narrow: Bools,
    bases: Int64s,
    sizes: Int64s,
    numbers: Int64s,
    level_pages: Int64s,
    level_cursors: Int64s,
    table: Int32s,
    cursor: Int64s,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> int:
    """Pairs of (number of a tuple, row of a page) with equal codes, until done or the output is full.

    Level l has ``sizes[l]`` ascending codes at byte ``at[l]`` of ``block``: words of 32 bits if it is ``narrow``, else
    of 64, to which its base is added. Its tuples are numbered from ``numbers[l]`` on, and it meets the first
    ``level_pages[l]`` pages of the run. ``level_cursors`` says where in each level the last page left off: pages that
    follow each other in code order, as they mostly do, find their tuples at once. Rows are looked up in ``table``
    where a page's codes lie so close together that they fit it. ``cursor`` is (page, level, position, row): where to
    go on; the match is over when ``cursor[0] == rows.size``.
    """
    words, longs = block.view(np.uint32), block.view(np.int64)
    found = 0
    first_level, position, resume = cursor[1], cursor[2], cursor[3]
    for page in range(cursor[0], rows.size):
        start, end = code_starts[page], code_starts[page] + rows[page]
        distance = np.uint64(run[end - 1]) - np.uint64(run[start])
        tabled = distance < np.uint64(table.size)
        if tabled:
            _fill_table(run, start, end, table)
        for level in range(first_level, at.size):
            if page >= level_pages[level]:
                continue
            if narrow[level]:
                begin = at[level] >> 2
                found, position, resume = _match_level(
                    run, start, end, words[begin : begin + sizes[level]], bases[level], position, level_cursors[level],
                    resume, table, tabled, page, numbers[level], found, out_position, out_page, out_row,
                )  # fmt: skip
            else:
                begin = at[level] >> 3
                found, position, resume = _match_level(
                    run, start, end, longs[begin : begin + sizes[level]], bases[level], position, level_cursors[level],
                    resume, table, tabled, page, numbers[level], found, out_position, out_page, out_row,
                )  # fmt: skip
            if resume >= 0:
                cursor[0], cursor[1], cursor[2], cursor[3] = page, level, position, resume
                return found
            level_cursors[level] = position
            position = np.int64(-1)
        first_level = 0
    cursor[0], cursor[1], cursor[2], cursor[3] = rows.size, 0, -1, -1
    return found


@njit(cache=True, nogil=True)
def first_positions(block: Bytes, at: Int64s, narrow: Bools, bases: Int64s, sizes: Int64s, code: int) -> Int64s:
    """In each level (see `match_levels`), the first position that is not less than ``code``."""
    words, longs = block.view(np.uint32), block.view(np.int64)
    positions = np.empty(at.size, np.int64)
    for level in range(at.size):
        if narrow[level]:
            begin = at[level] >> 2
            codes = words[begin : begin + sizes[level]]
            positions[level] = _first_at_least(codes, bases[level], 0, sizes[level], code)
        else:
            begin = at[level] >> 3
            wide = longs[begin : begin + sizes[level]]
            positions[level] = _first_at_least(wide, bases[level], 0, sizes[level], code)
    return positions


@njit(cache=True, nogil=True)
def flag_pages(
    codes: npt.NDArray[Any], base: int, first_codes: Int64s, last_codes: Int64s, places: Int32s, flags: Bools
) -> None:
    """Set ``flags`` at the places of pages that may hold any of some codes; codes and pages are ascending.

    Codes are given as distances from ``base``. It walks codes and pages together, and jumps over pages where codes are
    few.
    """
    page, pages = 0, first_codes.size
    flagged = -np.int64(_GREATEST) - 1  # before this all is done
    for distance in codes:
        code = np.int64(distance) + base
        if code < flagged:
            continue
        page = find_from(last_codes, page, pages, code)
        holding = page
        while holding < pages and first_codes[holding] <= code:
            flags[places[holding]] = True
            if code < last_codes[holding]:
                flagged = last_codes[holding]  # codes before it are in no other page
                break
            holding += 1
