"""Fingerprints of samples: how many keys came once, twice, and so on, as counted and as expected.

Stack distances: for each tuple of a sample, the least cache that has its key, for caches of many sizes at once.

Simulate which tuples the cache of a front stage answers, in the order in which they come.

Choose tuples by a hash of their key: all tuples of a key or none.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.array_types import Bytes, Int32s, Int64s

Floats = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def count_runs(codes: Int64s, excluded: Int64s, fingerprint: Int64s) -> int:
    """Add to ``fingerprint[i]`` the keys that came i + 1 times, and to the last those that came more often.

    Both ``codes`` and the keys that are ``excluded`` ascend. Gives how many tuples were counted.
    """
    tuples = 0
    begin, other = 0, 0
    while begin < codes.size:
        end = begin + 1
        while end < codes.size and codes[end] == codes[begin]:
            end += 1
        while other < excluded.size and excluded[other] < codes[begin]:
            other += 1
        if other == excluded.size or excluded[other] != codes[begin]:
            fingerprint[min(end - begin, fingerprint.size) - 1] += 1
            tuples += end - begin
        begin = end
    return tuples


@njit(cache=True, nogil=True)
def often_counted(codes: Int64s, least: int, out_code: Int64s, out_count: Int64s) -> int:
    """Keys that come at least so often in codes that ascend, with their counts; gives how many there are."""
    found = 0
    begin = 0
    while begin < codes.size:
        end = begin + 1
        while end < codes.size and codes[end] == codes[begin]:
            end += 1
        if end - begin >= least:
            out_code[found], out_count[found] = codes[begin], end - begin
            found += 1
        begin = end
    return found


@njit(cache=True, nogil=True)
def thin_counts(codes: Int64s, least: int, draws: Floats, out_code: Int64s, out_count: Int64s) -> int:
    """Keys of codes that ascend, with their counts, but of those below ``least`` only some; gives how many there are.

    A key that came c < ``least`` times is kept with probability c / least and then counts ``least`` times, so that what
    is counted is expected to be the true number (threshold sampling: N. Duffield, C. Lund & M. Thorup, J. ACM 54(6),
    2007). ``draws`` has a number from 0 to 1 for each code. ``out_code`` may be ``codes``.
    """
    kept = 0
    begin, number = 0, 0
    while begin < codes.size:
        end = begin + 1
        while end < codes.size and codes[end] == codes[begin]:
            end += 1
        if end - begin >= least or draws[number] * least < end - begin:
            out_code[kept], out_count[kept] = codes[begin], max(end - begin, least)
            kept += 1
        number += 1
        begin = end
    return kept


@njit(cache=True, nogil=True)
def expected_fingerprint(keys: Floats, rate: Floats, out: Floats) -> float:
    """How many keys are expected to come i + 1 times, in ``out[i]``, and in the last, so often or more.

    ``keys[g]`` of them come ``rate[g]`` times in a sample on average; how often one comes is taken to be Poisson's.
    Gives how many different keys are expected in all.
    """
    out[:] = 0.0
    distinct = 0.0
    for group in range(keys.size):
        number, mean = keys[group], rate[group]
        distinct -= number * np.expm1(-mean)
        term = number * np.exp(-mean)
        for times in range(1, out.size):
            term *= mean / times
            out[times - 1] += term
            if times > mean and term < 1e-12:
                break
    out[-1] = max(distinct - out[:-1].sum(), 0.0)
    return distinct


@njit(cache=True, nogil=True)
def power_law_exponent(
    keys: Floats, log_rank: Floats, tuples: float, distinct: float, steepest: float, halvings: int
) -> float:
    """The exponent a of P ~ exp(-a * log_rank), up to ``steepest``, that has ``distinct`` different keys in ``tuples``.

    ``keys[g]`` of them have ``log_rank[g]``. The steeper the law, the fewer different keys come.
    """
    low, high = 0.0, steepest
    weight = np.empty(keys.size)
    for _ in range(halvings):
        middle = (low + high) / 2
        total = 0.0
        for group in range(keys.size):
            weight[group] = np.exp(-middle * log_rank[group])
            total += keys[group] * weight[group]
        expected = 0.0
        for group in range(keys.size):
            expected -= keys[group] * np.expm1(-tuples * weight[group] / total)
        if expected > distinct:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@njit(cache=True, nogil=True)
def hot_share(hot: float, cold: float, tuples: float, distinct: float, halvings: int) -> float:
    """The share of ``tuples`` that asks for ``hot`` keys if ``distinct`` different keys come, of them or ``cold`` ones.

    All hot keys are alike, and all cold ones. The more of the tuples the hot ones have, the fewer different keys come.
    """
    low, high = hot / (hot + cold), 1.0
    for _ in range(halvings):
        middle = (low + high) / 2
        expected = -hot * np.expm1(-tuples * middle / hot) - cold * np.expm1(-tuples * (1 - middle) / cold)
        if expected > distinct:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@njit(cache=True, nogil=True)
def link_references(key: Int32s, num_keys: int, previous: Int64s, occurrence: Int32s) -> None:
    """For each reference the one before of the same key, or -1, and how many there were before it.

    Keys are numbered from 0 to ``num_keys - 1``.
    """
    last = np.full(num_keys, -1, np.int64)
    for i in range(key.size):
        before = last[key[i]]
        previous[i] = before
        occurrence[i] = 0 if before < 0 else occurrence[before] + 1
        last[key[i]] = i


@njit(cache=True, nogil=True)
def stack_distances(previous: Int64s, place: Int64s, out: Int64s) -> None:
    """The rank of each reference's key, from 1, among all keys as they stand before it; 0 for a key not seen before.

    ``place[i]`` is where the key stands after reference ``i``, in an order of all references of which a later place is
    a better one: that of time for LRU, that of counts for LFU. A cache of n keys that holds those in the best places
    has a key if and only if its rank is at most n, so that one pass tells the hits of caches of all sizes (R. L.
    Mattson, J. Gecsei, D. R. Slutz & I. L. Traiger, IBM Systems Journal 9(2), 1970). How many keys stand in better
    places is counted in a binary indexed tree (P. M. Fenwick, Software: Practice and Experience 24(3), 1994), O(log n)
    for each reference.
    """
    n = previous.size
    tree = np.zeros(n + 1, np.int32)
    held = 0
    for i in range(n):
        before = previous[i]
        if before < 0:
            out[i] = 0
            held += 1
        else:
            at = place[before] + 1
            not_better = 0
            node = at
            while node > 0:
                not_better += tree[node]
                node -= node & -node
            out[i] = held - not_better + 1
            node = at
            while node <= n:
                tree[node] -= 1
                node += node & -node
        node = place[i] + 1
        while node <= n:
            tree[node] += 1
            node += node & -node


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


_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@njit(inline="always")
def _hash(code: int) -> np.uint64:
    """The last steps of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): codes that follow each other lie anywhere."""
    z = np.uint64(code)
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def count_chosen(codes: Int64s, below: np.uint64) -> int:
    """How many codes have a hash below that."""
    chosen = 0
    for code in codes:
        chosen += _hash(code) < below
    return chosen


@njit(cache=True, nogil=True)
def choose_by_hash(codes: Int64s, below: np.uint64, out: Int64s) -> None:
    """The codes with a hash below that, in their order."""
    chosen = 0
    for code in codes:
        if _hash(code) < below:
            out[chosen] = code
            chosen += 1
