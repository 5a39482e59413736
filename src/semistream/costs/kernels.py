"""Kernels over samples of a stream: key counts and their expectation, stack distances, hashing.

A fingerprint of a sample is the number of keys that occur once, twice, and so on. A stack distance is the size of the
smallest cache that still holds the key of a tuple.
"""

import numpy as np

from semistream.kernels.array_types import Floats, Int32s, Int64s
from semistream.kernels.compiler import kernel
from semistream.kernels.splitmix64 import mix


@kernel
def count_runs(codes: Int64s, excluded: Int64s, fingerprint: Int64s) -> int:
    """Add to ``fingerprint[i]`` the number of keys that occur i + 1 times, and to the last entry all above.

    Both ``codes`` and the ``excluded`` keys ascend. Return the number of tuples counted.
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


@kernel
def often_counted(codes: Int64s, least: int, out_code: Int64s, out_count: Int64s) -> int:
    """Write the keys that occur at least ``least`` times in ascending ``codes``, with counts; return their number."""
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


@kernel
def thin_counts(codes: Int64s, least: int, draws: Floats, out_code: Int64s, out_count: Int64s) -> int:
    """Write the keys of ascending ``codes`` with their counts, but only a sample of the rare ones; return their number.

    A key that occurs c < ``least`` times is kept with probability c / least and then counts ``least`` times, which
    makes counts unbiased (threshold sampling: N. Duffield, C. Lund & M. Thorup, J. ACM 54(6), 2007). ``draws`` has a
    number from 0 to 1 for each code. ``out_code`` may be ``codes``.
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


@kernel
def expected_fingerprint(keys: Floats, rate: Floats, out: Floats) -> float:
    """Write to ``out[i]`` the number of keys expected i + 1 times, and to the last entry those expected more often too.

    Group g has ``keys[g]`` keys, each with a Poisson count of mean ``rate[g]``. Return the expected number of distinct
    keys.
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


@kernel(allocates=True)
def power_law_exponent(
    keys: Floats, log_rank: Floats, tuples: float, distinct: float, steepest: float, halvings: int
) -> float:
    """Return the exponent a of P ~ exp(-a * log_rank) that gives ``distinct`` distinct keys in ``tuples``.

    Group g has ``keys[g]`` keys of ``log_rank[g]``. The steeper the law, the fewer distinct keys occur, so bisection
    finds a between 0 and ``steepest``.
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


@kernel
def hot_share(hot: float, cold: float, tuples: float, distinct: float, halvings: int) -> float:
    """Return the share of ``tuples`` on ``hot`` keys, the rest on ``cold`` ones, that gives ``distinct`` distinct keys.

    All hot keys are equally frequent, and so are all cold keys. The larger the share of the hot keys, the fewer
    distinct keys occur, so bisection finds it.
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


@kernel(allocates=True)
def link_references(key: Int32s, num_keys: int, previous: Int64s, occurrence: Int32s) -> None:
    """Write for each reference the previous one to the same key, or -1, and the number of earlier ones.

    Keys are numbered from 0 to ``num_keys - 1``.
    """
    last = np.full(num_keys, -1, np.int64)
    for i in range(key.size):
        before = last[key[i]]
        previous[i] = before
        occurrence[i] = 0 if before < 0 else occurrence[before] + 1
        last[key[i]] = i


@kernel(allocates=True)
def stack_distances(previous: Int64s, place: Int64s, out: Int64s) -> None:
    """Write the rank of each reference's key, from 1, among all keys before the reference; 0 for a new key.

    ``place[i]`` is the key's place after reference ``i`` in a total order of all references, in which a later place is
    better: ordered by time for LRU, by count for LFU. A cache of n keys holds the n best places, so it has a key if and
    only if the key's rank is at most n: one pass gives the hits of caches of all sizes (R. L. Mattson, J. Gecsei,
    D. R. Slutz & I. L. Traiger, IBM Systems Journal 9(2), 1970). A binary indexed tree counts the keys in better places
    (P. M. Fenwick, Software: Practice and Experience 24(3), 1994), in O(log n) per reference.
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


@kernel
def count_chosen(codes: Int64s, below: np.uint64) -> int:
    """Return the number of codes whose hash is less than ``below``."""
    chosen = 0
    for code in codes:
        chosen += mix(np.uint64(code)) < below
    return chosen


@kernel
def choose_by_hash(codes: Int64s, below: np.uint64, out: Int64s) -> None:
    """Write the codes whose hash is less than ``below``, in their order."""
    chosen = 0
    for code in codes:
        if mix(np.uint64(code)) < below:
            out[chosen] = code
            chosen += 1
