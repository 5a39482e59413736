"""Match the pages of a run with stream tuples that stand in several sorted levels of one array."""

import numpy as np
from numba import njit

from semistream.kernels.types import Bools, Int32s, Int64s

_NEAR = 8  # rows that are looked at one by one before the search jumps


@njit(inline="always")
def _find(values: Int64s, low: int, high: int, code: int) -> int:
    """First position in ``values[low:high]`` that is not less than ``code``.

    It starts where ``code`` would be if values were evenly spread, which for dense keys is where it is, and gallops
    from there.
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


@njit(cache=True, nogil=True)
def match_levels(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    codes: Int64s,
    level_begins: Int64s,
    level_ends: Int64s,
    level_pages: Int64s,
    level_cursors: Int64s,
    cursor: Int64s,
    out_position: Int64s,
    out_page: Int32s,
    out_row: Int32s,
) -> int:
    """Pairs of (position in ``codes``, row of a page) with equal codes, until done or the output is full.

    Level l is ``codes[level_begins[l]:level_ends[l]]``, ascending, and meets the first ``level_pages[l]`` pages of the
    run. ``level_cursors`` says where in each level the last page left off: pages that follow each other in code order,
    as they mostly do, find their tuples at once. ``cursor`` is (page, level, position, row): where to go on; the match
    is over when ``cursor[0] == rows.size``.
    """
    found = 0
    first_level, position, resume = cursor[1], cursor[2], cursor[3]
    for page in range(cursor[0], rows.size):
        start, end = code_starts[page], code_starts[page] + rows[page]
        least, most = run[start], run[end - 1]
        for level in range(first_level, level_begins.size):
            if page >= level_pages[level]:
                continue
            begin, stop = level_begins[level], level_ends[level]
            if position < 0:
                position = level_cursors[level]
                if position > begin and codes[position - 1] >= least:
                    position = _find(codes, begin, position, least)
                else:
                    while position < stop and codes[position] < least:
                        position += 1
            row = start
            while position < stop and codes[position] <= most:
                code = codes[position]
                near = min(row + _NEAR, end)
                while row < near and run[row] < code:
                    row += 1
                if row == near:
                    row = _find(run, row, end, code)
                match = row
                if resume >= 0:
                    match, resume = start + resume, np.int64(-1)
                while match < end and run[match] == code:
                    if found == out_row.size:
                        cursor[0], cursor[1], cursor[2], cursor[3] = page, level, position, match - start
                        return found
                    out_position[found] = position
                    out_page[found] = page
                    out_row[found] = match - start
                    found += 1
                    match += 1
                position += 1
            # The next page may hold more rows of this one's last code: its tuples are looked at again.
            while position > begin and codes[position - 1] >= most:
                position -= 1
            level_cursors[level] = position
            position = np.int64(-1)
        first_level = 0
    cursor[0], cursor[1], cursor[2], cursor[3] = rows.size, 0, -1, -1
    return found


@njit(cache=True, nogil=True)
def first_positions(codes: Int64s, begins: Int64s, ends: Int64s, code: int) -> Int64s:
    """In each level ``codes[begins[l]:ends[l]]``, the first position that is not less than ``code``."""
    positions = np.empty(begins.size, np.int64)
    for level in range(begins.size):
        positions[level] = _find(codes, begins[level], ends[level], code)
    return positions


@njit(cache=True, nogil=True)
def flag_pages(codes: Int64s, first_codes: Int64s, last_codes: Int64s, places: Int32s, flags: Bools) -> None:
    """Set ``flags`` at the places of pages that may hold any of the ascending ``codes``; pages are ascending too.

    It walks codes and pages together, and jumps over pages where codes are few.
    """
    page, pages = 0, first_codes.size
    for code in codes:
        near = min(page + _NEAR, pages)
        while page < near and last_codes[page] < code:
            page += 1
        if page == near:
            page = _find(last_codes, page, pages, code)
        holding = page
        while holding < pages and first_codes[holding] <= code:
            flags[places[holding]] = True
            holding += 1
