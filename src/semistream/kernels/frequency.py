"""Count how often key codes are asked for, and find those asked for often."""

import numpy as np
from numba import njit

from semistream.kernels.types import Bytes, Int32s, Int64s

_GOLDEN, _OTHER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_NOTED = 255  # of a counter: its key was given out, and is not again until counters are halved


@njit(inline="always")
def _places(code: int, bits: int) -> tuple[np.int64, np.int64]:
    mixed = np.uint64(code) * _GOLDEN
    again = (mixed ^ (mixed >> np.uint64(29))) * _OTHER
    return np.int64(mixed >> np.uint64(64 - bits)), np.int64(again >> np.uint64(64 - bits))


@njit(cache=True, nogil=True)
def count_hot_rows(
    run: Int64s,
    code_starts: Int64s,
    page: Int32s,
    row: Int32s,
    counters: Bytes,
    bits: int,
    threshold: int,
    asked: Int32s,
    out_page: Int32s,
    out_row: Int32s,
    out_count: Int32s,
) -> int:
    """Add the pairs of a run to ``counters`` and give keys that come to be asked for more than ``threshold`` times.

    Pairs name rows by (page, row) and stand page by page. A key comes out once, as the page and the first of its rows,
    with the estimate of its count: the lesser of two counters, never too low, too high when other keys share both.
    ``counters`` are ``2**bits`` bytes; with no bits the pairs at hand are all that counts. ``asked`` is room for a
    page's rows, all zero.
    """
    found = 0
    begin = 0
    while begin < page.size:
        number = page[begin]
        end = begin
        while end < page.size and page[end] == number:
            asked[row[end]] += 1
            end += 1
        start = code_starts[number]
        for i in range(begin, end):
            at = row[i]
            count = asked[at]
            asked[at] = 0
            if count == 0 or (at > 0 and run[start + at - 1] == run[start + at]):
                continue  # seen already, or not the first row of its key
            if bits == 0:
                if count > threshold and found < out_row.size:
                    out_page[found], out_row[found], out_count[found] = number, at, count
                    found += 1
                continue
            one, other = _places(run[start + at], bits)
            before = np.int64(min(counters[one], counters[other]))
            if before == _NOTED:
                continue
            estimate = before + count
            counted = min(estimate, _NOTED - 1)
            if estimate > threshold and found < out_row.size:
                out_page[found], out_row[found], out_count[found] = number, at, estimate
                counted = _NOTED
                found += 1
            counters[one] = max(np.int64(counters[one]), counted)
            counters[other] = max(np.int64(counters[other]), counted)
        begin = end
    return found


@njit(cache=True, nogil=True)
def rows_of_keys(
    run: Int64s,
    code_starts: Int64s,
    rows: Int32s,
    numbers: Int64s,
    first_code: Int64s,
    last_code: Int64s,
    page: Int32s,
    row: Int32s,
    out_page: Int32s,
    out_row: Int32s,
    out_key: Int32s,
) -> tuple[int, bool]:
    """All rows of the keys whose first rows are given, each with the number of its key; gives how many, and whether the
    output has room for all of them. It stops before a key whose rows do not all fit.

    A key that has rows in another page too is left out: ``numbers`` are those of the run's pages in the page table,
    which has the first and last code of every page.
    """
    found = 0
    for key in range(page.size):
        number, start = numbers[page[key]], code_starts[page[key]]
        code = run[start + row[key]]
        if (number > 0 and last_code[number - 1] == code) or (
            number + 1 < first_code.size and first_code[number + 1] == code
        ):
            continue
        end = row[key]
        while end < rows[page[key]] and run[start + end] == code:
            end += 1
        if found + end - row[key] > out_row.size:
            return found, False
        for at in range(row[key], end):
            out_page[found], out_row[found], out_key[found] = page[key], at, key
            found += 1
    return found, True
