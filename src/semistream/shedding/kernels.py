"""Count the rows of each key in pages of R, whose codes ascend from page to page.

Ranks of a batch's rows: numbers that look random, are all different, and depend on the seed and the row alone.

Systematic sampling with unequal probabilities, in whole numbers.

The best schedule of a stream of which all is known: see `semistream.shedding.OptimalOffline`.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s, UInt64s
from semistream.kernels.search import find, lower_bound

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


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@njit(inline="always")
def _mix(z: np.uint64) -> np.uint64:
    """The last steps of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): one to one, so different numbers stay so."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def rank_rows(seed: np.uint64, part: np.uint64, out: UInt64s) -> None:
    """Fill ``out[i]`` with the rank of row ``i`` of a part. No two rows of a part have the same."""
    start = _mix(seed + _GOLDEN) ^ _mix(_mix(part + _GOLDEN) + seed)
    for row in range(out.size):
        out[row] = _mix(start + np.uint64(row) * _GOLDEN)


@njit(cache=True, nogil=True)
def draw_systematic(
    order: npt.NDArray[np.intp], sizes: Int64s, certain: int, draws: int, total: int, start: int, chosen: Bools
) -> None:
    """Choose rows in the order given: those with 0 < size < ``certain``, each with probability size * draws / total.

    Sizes are laid one behind the other on a line, ``draws`` times as long as they are; a row is chosen if a multiple
    of ``total`` lies in its stretch. ``start`` is how far after such a multiple the first row begins. No stretch is
    longer than ``total``, so what is added up stays below twice that.
    """
    rest = start
    for row in order:
        if 0 < sizes[row] < certain:
            rest += sizes[row] * draws
            if rest >= total:
                rest -= total
                chosen[row] = True


@njit(inline="always")
def _places_above(window: Int64s, length: int, value: int) -> int:
    """Where ``value`` stands in ``window``, which falls, before all that are equal to it."""
    low, high = 0, length
    while low < high:
        middle = (low + high) >> 1
        if window[middle] > value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(inline="always")
def _best_start(window: Int64s, length: int, w: int, held: Int64s) -> tuple[int, int]:
    """The least loss, and how many tuples to keep for it, of a window that ends when the join asks.

    ``held[k]`` is the loss from there on with k tuples in the buffer. Whatever k is, it is the k best that are kept.
    """
    loss = 0
    for place in range(length):
        loss += window[place]
    best, best_k = loss + held[0], 0
    for k in range(1, min(w, length) + 1):
        loss -= window[k - 1]
        if loss + held[k] <= best:
            best, best_k = loss + held[k], k
    return best, best_k


@njit(cache=True, nogil=True)
def solve_offline(
    matches: Int64s, w: int, c_loop: int, first_request: int, partial: bool, keeps: Bytes, start_keeps: Int32s
) -> tuple[int, int]:
    """The least loss of a schedule, and how many tuples to keep until the first request.

    Backwards over the tuples. ``held[i, k]`` is the least loss from tuple i on if the join waits and k tuples are in
    the buffer; row i of the last ``c_loop`` + 1 is kept, modulo. Bit k of ``keeps[i]`` says whether tuple i is kept
    then, bit w + 1 + k whether the buffer is handed over before it is full (``partial``); ``start_keeps[i]`` is how
    many of the tuples i to i + ``c_loop`` are kept if the join got a packet at i.
    """
    n = matches.size
    ring = c_loop + 1
    held = np.zeros((ring, w + 1), np.int64)
    window = np.empty(c_loop + 1, np.int64)
    length = 0
    for i in range(n - 1, -1, -1):
        value = matches[i]
        if length == c_loop:  # the tuple that is c_loop away leaves the window
            gone = _places_above(window, length, matches[i + c_loop])
            length -= 1
            for k in range(gone, length):
                window[k] = window[k + 1]
        place = _places_above(window, length, value)
        for k in range(length, place, -1):
            window[k] = window[k - 1]
        window[place] = value
        length += 1
        handed, start_keeps[i] = _best_start(window, length, w, held[(i + c_loop) % ring])
        after, now = held[(i + 1) % ring], held[i % ring]
        for k in range(w):
            keep, drop = after[k + 1], after[k] + value
            best = keep
            if keep <= drop:
                keeps[i, k >> 3] |= np.uint8(1 << (k & 7))
            else:
                best = drop
            if partial and k > 0 and handed < best:
                best = handed
                bit = w + 1 + k
                keeps[i, bit >> 3] |= np.uint8(1 << (bit & 7))
            now[k] = best
        now[w] = handed
    if first_request == 0:
        return held[0, 0], 0
    begin = np.sort(matches[:first_request])[::-1].copy()
    return _best_start(begin, begin.size, w, held[first_request % ring])  # the rows left are those of 0 to c_loop


@njit(cache=True, nogil=True)
def follow_schedule(
    matches: Int64s,
    w: int,
    c_loop: int,
    first_request: int,
    partial: bool,
    keeps: Bytes,
    start_keeps: Int32s,
    first_keeps: int,
    kept: Bools,
    requests: Int64s,
    transfers: Int64s,
) -> int:
    """Mark the tuples that are kept, and when packets were asked for and handed over; gives how many packets."""
    n = matches.size
    packets = 0
    i, k = 0, first_keeps
    request = first_request
    while True:
        end = min(request, n)
        if k:
            order = np.argsort(-matches[i:end], kind="mergesort")  # of equal ones the first
            for place in range(k):
                kept[i + order[place]] = True
        i = end
        while i < n and k < w:
            bit = w + 1 + k
            if partial and (keeps[i, bit >> 3] >> (bit & 7)) & 1:
                break
            if (keeps[i, k >> 3] >> (k & 7)) & 1:
                kept[i] = True
                k += 1
            i += 1
        if i >= n:
            return packets
        requests[packets], transfers[packets] = request, i
        packets += 1
        k, request = start_keeps[i], i + c_loop
