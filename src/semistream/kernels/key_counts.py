"""Count the rows of each key in pages of R, whose codes ascend from page to page."""

import numpy as np
from numba import njit

from semistream.kernels.search import find, lower_bound
from semistream.kernels.types import Int32s, Int64s

PAGE, ROW, CODE, COUNT, KEYS, LISTED, STATE = 0, 1, 2, 3, 4, 5, 6
"""Where the scan is, the key it is at with its rows so far, and how many keys were met and listed."""


@njit(inline="always")
def _end_key(bound: int, state: Int64s, out_code: Int64s, out_count: Int64s) -> None:
    """List the key that the scan is at, if it has more than ``bound`` rows."""
    if state[COUNT]:
        state[KEYS] += 1
        if state[COUNT] > bound:
            out_code[state[LISTED]], out_count[state[LISTED]] = state[CODE], state[COUNT]
            state[LISTED] += 1


@njit(cache=True, nogil=True)
def count_keys(
    words: Int64s, code_starts: Int64s, rows: Int32s, bound: int, state: Int64s, out_code: Int64s, out_count: Int64s
) -> bool:
    """List keys with more than ``bound`` rows, with their number, from where ``state`` says on.

    A key goes on from run to run: the last one is listed by `end_of_keys`. False if there is no room left in ``out``:
    make some, and call again.
    """
    while state[PAGE] < rows.size:
        start = code_starts[state[PAGE]]
        row, end = state[ROW], np.int64(rows[state[PAGE]])
        while row < end:
            code = words[start + row]
            if code != state[CODE] or state[COUNT] == 0:
                if state[LISTED] == out_code.size:
                    state[ROW] = row
                    return False
                _end_key(bound, state, out_code, out_count)
                state[CODE], state[COUNT] = code, 0
            begin = row
            while row < end and words[start + row] == code:
                row += 1
            state[COUNT] += row - begin
        state[PAGE] += 1
        state[ROW] = 0
    state[PAGE] = 0
    return True


@njit(cache=True, nogil=True)
def end_of_keys(bound: int, state: Int64s, out_code: Int64s, out_count: Int64s) -> None:
    """List the last key; there must be room for it."""
    _end_key(bound, state, out_code, out_count)
    state[COUNT] = 0


@njit(cache=True, nogil=True)
def count_touched(words: Int64s, code_starts: Int64s, rows: Int32s, touched: Int64s, out_count: Int64s) -> None:
    """Add to ``out_count`` the rows of each of the ``touched`` codes, which ascend, each once."""
    for page in range(rows.size):
        if rows[page] == 0:
            continue
        start = code_starts[page]
        at = lower_bound(touched, 0, touched.size, words[start])
        for row in range(rows[page]):
            code = words[start + row]
            while at < touched.size and touched[at] < code:
                at += 1
            if at == touched.size:
                break
            if touched[at] == code:
                out_count[at] += 1


@njit(cache=True, nogil=True)
def look_up_counts(codes: Int64s, listed: Int64s, counts: Int64s, unlisted: int, out: Int64s) -> None:
    """The count of each code, of those that are ``listed``, which ascend; ``unlisted`` of all others."""
    for i in range(codes.size):
        place = find(listed, 0, listed.size, codes[i])
        out[i] = counts[place] if place < listed.size and listed[place] == codes[i] else unlisted
