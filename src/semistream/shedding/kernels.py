"""Kernels of shedding: count keys, rank rows, draw samples, and solve for the optimal offline schedule.

- `count_keys`, `end_of_keys`, `count_touched` count the rows of each key in pages of R, whose codes ascend from page to
  page; `look_up_counts` finds the counts of stream rows.
- `rank_rows` gives rows pseudo-random ranks, distinct within a part, that depend only on seed, part and row.
- `draw_systematic` draws a systematic sample with unequal probabilities, in integers.
- `solve_offline` and `follow_schedule` are the two passes of `semistream.shedding.OptimalOffline`.
"""

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s, UInt64s
from semistream.kernels.compiler import kernel, part
from semistream.kernels.search import find, lower_bound
from semistream.kernels.splitmix64 import GOLDEN, mix

PAGE, ROW, CODE, COUNT, KEYS, LISTED, STATE = 0, 1, 2, 3, 4, 5, 6
"""Fields of a scan's state: page and row, current key and its rows so far, keys seen and listed; then their number."""


@part
def _end_key(bound: int, state: Int64s, out_code: Int64s, out_count: Int64s) -> None:
    """List the current key of the scan if it has more than ``bound`` rows."""
    if state[COUNT]:
        state[KEYS] += 1
        if state[COUNT] > bound:
            out_code[state[LISTED]], out_count[state[LISTED]] = state[CODE], state[COUNT]
            state[LISTED] += 1


@kernel
def count_keys(
    words: Int64s, code_starts: Int64s, rows: Int32s, bound: int, state: Int64s, out_code: Int64s, out_count: Int64s
) -> bool:
    """List keys with more than ``bound`` rows, and their row counts, from the position in ``state`` on.

    A key may continue in the next run of pages; `end_of_keys` lists the last one. Return False if the output is full:
    make room and call again.
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


@kernel
def end_of_keys(bound: int, state: Int64s, out_code: Int64s, out_count: Int64s) -> None:
    """List the last key; there must be room for it."""
    _end_key(bound, state, out_code, out_count)
    state[COUNT] = 0


@kernel
def count_touched(words: Int64s, code_starts: Int64s, rows: Int32s, touched: Int64s, out_count: Int64s) -> None:
    """Add to ``out_count`` the rows of each of the ``touched`` codes, which are distinct and ascend."""
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


@kernel
def look_up_counts(codes: Int64s, listed: Int64s, counts: Int64s, unlisted: int, out: Int64s) -> None:
    """Fill ``out`` with the count of each code, found among the ascending ``listed`` codes, or else ``unlisted``."""
    for i in range(codes.size):
        place = find(listed, 0, listed.size, codes[i])
        out[i] = counts[place] if place < listed.size and listed[place] == codes[i] else unlisted


@kernel
def rank_rows(seed: np.uint64, part: np.uint64, out: UInt64s) -> None:
    """Fill ``out[i]`` with the rank of row ``i`` of a part; ranks within a part are distinct."""
    start = mix(seed + GOLDEN) ^ mix(mix(part + GOLDEN) + seed)
    for row in range(out.size):
        out[row] = mix(start + np.uint64(row) * GOLDEN)


@kernel
def draw_systematic(
    order: npt.NDArray[np.intp], sizes: Int64s, certain: int, draws: int, total: int, start: int, chosen: Bools
) -> None:
    """Choose rows, in the given order, with probability size * draws / total, among those with 0 < size < ``certain``.

    The rows lie on a line one after the other, each with length size * ``draws``; a row is chosen if its interval
    contains a multiple of ``total``. ``start`` is the offset of the first row from such a multiple. No interval is
    longer than ``total``, so the running sum stays below twice that.
    """
    rest = start
    for row in order:
        if 0 < sizes[row] < certain:
            rest += sizes[row] * draws
            if rest >= total:
                rest -= total
                chosen[row] = True


@part
def _places_above(window: Int64s, length: int, value: int) -> int:
    """Return the first position of ``value`` in the descending ``window``: the number of larger values."""
    low, high = 0, length
    while low < high:
        middle = (low + high) >> 1
        if window[middle] > value:
            low = middle + 1
        else:
            high = middle
    return low


@part
def _best_start(window: Int64s, length: int, w: int, held: Int64s) -> tuple[int, int]:
    """Return the least loss of a window that ends with the join's request, and how many tuples to keep for it.

    ``held[k]`` is the loss after the window with k tuples in the buffer. For any k, the k best tuples are kept.
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


@kernel(allocates=True)
def solve_offline(
    matches: Int64s, w: int, c_loop: int, first_request: int, partial: bool, keeps: Bytes, start_keeps: Int32s
) -> tuple[int, int]:
    """Return the least loss of any schedule, and how many tuples to keep until the first request.

    The pass runs backwards over the tuples. ``held[i, k]`` is the least loss from tuple i on if the join waits and the
    buffer has k tuples; a ring holds the last ``c_loop`` + 1 rows. In that state, bit k of ``keeps[i]`` is set if tuple
    i is kept, and bit w + 1 + k if the buffer is handed over before it is full (``partial``). ``start_keeps[i]`` is the
    number of tuples kept from i to i + ``c_loop`` if the join got a packet at i.
    """
    n = matches.size
    ring = c_loop + 1
    held = np.zeros((ring, w + 1), np.int64)
    window = np.empty(c_loop + 1, np.int64)
    length = 0
    for i in range(n - 1, -1, -1):
        value = matches[i]
        if length == c_loop:  # tuple i + c_loop leaves the window
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
    return _best_start(begin, begin.size, w, held[first_request % ring])  # the ring now holds rows 0 to c_loop


@kernel(allocates=True)
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
    """Mark the kept tuples, list the request and transfer time of each packet, and return the number of packets."""
    n = matches.size
    packets = 0
    i, k = 0, first_keeps
    request = first_request
    while True:
        end = min(request, n)
        if k:
            order = np.argsort(-matches[i:end], kind="mergesort")  # stable: ties go to the earliest
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
