"""The best schedule of a stream of which all is known: see `semistream.shedding.OptimalOffline`."""

import numpy as np
from numba import njit

from semistream.kernels.types import Bools, Bytes, Int32s, Int64s


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
