"""Stack distances: for each tuple of a sample, the least cache that has its key, for caches of many sizes at once."""

import numpy as np
from numba import njit

from semistream.kernels.types import Int32s, Int64s


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
