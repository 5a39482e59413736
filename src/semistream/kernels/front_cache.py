"""Simulate which tuples the cache of a front stage answers, in the order in which they come."""

import numpy as np
from numba import njit

from semistream.kernels.types import Bytes, Int32s, Int64s

_OUT, _NOTED, _HELD = np.uint8(0), np.uint8(1), np.uint8(2)
_FIRST_THRESHOLD = 2
_NOTES = 10  # part of the cache's keys that may be noted, before they are taken in
_FILLING, _FILLED = 8, 0.9  # and while it is less than that full: part of the keys held
_AGED_AFTER = 2  # tuples for each key held
_WORTH = 1  # hits more, for each key that is taken in, from which it is worth it
_MOST_HALVINGS = 31


@njit(cache=True, nogil=True)
def simulate_front_cache(
    key: Int32s,
    page: Int64s,
    capacity: int,
    pass_rows: int,
    waiting_rows: int,
    least_period: int,
    counted_from: int,
) -> int:
    """How many tuples, from ``counted_from`` on, a front stage's cache of so many keys answers.

    A hit counts for its key at once. Tuples that miss wait for the page of their key: while ``pass_rows`` of them come,
    all pages come by, that of key k at ``page[k]`` of any range. Then they count, and a key that comes to be counted
    more than a threshold is noted. Keys noted replace those held that were asked for less, many at once, if that is
    worth it; the threshold is a little over the counts of those that would go next. All counts are halved when two
    tuples for each key held have come, not before ``least_period``, and ``waiting_rows`` that missed have met their
    pages.
    """
    num_keys = page.size
    count, halved = np.zeros(num_keys, np.int32), np.zeros(num_keys, np.int32)
    state = np.zeros(num_keys, np.uint8)
    waiting, next_waiting = np.zeros(num_keys, np.int32), np.empty(num_keys, np.int32)
    first_waiting = np.full(pass_rows, -1, np.int32)  # of the keys whose page is the same
    held, noted = np.empty(capacity, np.int32), np.empty(max(capacity // _NOTES, 1), np.int32)
    num_held = num_noted = seen = met = halvings = missed = hits = 0
    threshold = _FIRST_THRESHOLD
    for i in range(key.size):
        k = key[i]
        seen += 1
        if state[k] == _HELD:
            count[k] += 1
            hits += i >= counted_from
            continue
        if waiting[k] == 0:
            next_waiting[k] = first_waiting[page[k] % pass_rows]
            first_waiting[page[k] % pass_rows] = k
        waiting[k] += 1
        missed += 1
        here = missed % pass_rows
        k = first_waiting[here]
        first_waiting[here] = -1
        while k >= 0:
            met += waiting[k]
            if state[k] != _HELD:
                count[k] = (count[k] >> min(halvings - halved[k], _MOST_HALVINGS)) + waiting[k]
                halved[k] = halvings
            waiting[k] = 0
            if state[k] == _OUT and count[k] > threshold:
                noted[num_noted] = k
                num_noted += 1
                state[k] = _NOTED
                filling = num_held + num_noted < _FILLED * capacity and num_noted >= num_held // _FILLING
                if filling or num_noted == noted.size:
                    num_held, threshold = _take_in(held, num_held, noted[:num_noted], count, state, threshold)
                    num_noted = 0
            k = next_waiting[k]
        if seen >= max(_AGED_AFTER * num_held, least_period) and met >= waiting_rows:
            num_held, threshold = _take_in(held, num_held, noted[:num_noted], count, state, threshold)
            num_noted = seen = met = 0
            halvings += 1
            threshold = max(threshold // 2, 1)
            for j in range(num_held):
                count[held[j]] >>= 1
                halved[held[j]] = halvings
    return hits


@njit(cache=True, nogil=True)
def _take_in(
    held: Int32s, num_held: int, noted: Int32s, count: Int32s, state: Bytes, threshold: int
) -> tuple[int, int]:
    """Let noted keys be held in place of those with lower counts; gives how many are held, and the new threshold."""
    if noted.size == 0:
        return num_held, threshold
    state[noted] = _OUT
    if num_held + noted.size <= held.size:
        held[num_held : num_held + noted.size] = noted
        state[noted] = _HELD
        return num_held + noted.size, 1
    ascending = np.sort(count[held[:num_held]])
    replaced = min(noted.size, num_held)
    gain = count[noted].sum() - ascending[:replaced].sum()
    if num_held < held.size or gain > _WORTH * replaced:
        keys = np.concatenate((held[:num_held], noted))
        state[held[:num_held]] = _OUT
        order = np.argsort(-count[keys], kind="mergesort")  # of equals, those held first
        num_held = held.size
        held[:] = keys[order[:num_held]]
        state[held] = _HELD
        for k in keys[order[num_held:]]:
            count[k] = 0
        ascending = np.sort(count[held])
    return num_held, ascending[replaced - 1] + _WORTH
