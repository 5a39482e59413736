"""Dynamic programs that choose the tuples of join components to retain.

They rely on a property of some optimum: it takes all components but one whole or not at all. Component i has ``m[i]``
tuples of one relation and ``n[i]`` of the other; each of the first joins each of the second.
"""

import numpy as np
import numpy.typing as npt

from semistream.kernels.array_types import Bytes, Int64s
from semistream.kernels.compiler import kernel, part, subroutine

Table = npt.NDArray[np.int64]
_UNREACHED = np.int64(-1)


@part
def retained_edges(m: int, n: int, p: int) -> int:
    """Return C_{m,n}(p) of WINDOW, Lemma 1: the most edges among p nodes of K(m, n). It is convex in p."""
    b = min(m, n)
    return (p * p) // 4 if p <= 2 * b else b * (p - b)


@subroutine
def _add_whole(m: Int64s, n: Int64s, first: int, last: int, best: Int64s) -> None:
    """Add components [first, last) to a knapsack: ``best[j]`` is the most edges of whole components with j nodes."""
    for i in range(first, last):
        size, edges = m[i] + n[i], m[i] * n[i]
        for j in range(best.size - 1, size - 1, -1):
            if best[j - size] != _UNREACHED and best[j - size] + edges > best[j]:
                best[j] = best[j - size] + edges


@kernel(allocates=True)
def find_partial(m: Int64s, n: Int64s, k: int) -> tuple[int, int, int]:
    """Return the most edges among k nodes, the one component that may be taken in part, and its number of nodes.

    All others are taken whole or not at all. Each component in turn needs the knapsack of all others. Halving the
    components recursively adds each one to O(log c) tables of k + 1 entries: O(k c log c) in total.
    """
    levels = 2
    while (1 << (levels - 2)) < m.size:
        levels += 1
    tables = np.empty((levels, k + 1), dtype=np.int64)
    tables[0, :] = _UNREACHED
    tables[0, 0] = 0
    lows, highs, stages = np.zeros(levels, np.int64), np.zeros(levels, np.int64), np.zeros(levels, np.int64)
    highs[0] = m.size
    level = 0
    edges, partial, nodes = -1, 0, 0
    while level >= 0:
        low, high = lows[level], highs[level]
        if high - low == 1:
            for p in range(min(m[low] + n[low], k) + 1):
                others = tables[level, k - p]
                if others != _UNREACHED and others + retained_edges(m[low], n[low], p) > edges:
                    edges, partial, nodes = others + retained_edges(m[low], n[low], p), low, p
            level -= 1
            continue
        middle = (low + high) // 2
        if stages[level] == 2:
            level -= 1
            continue
        tables[level + 1] = tables[level]
        if stages[level] == 0:
            _add_whole(m, n, middle, high, tables[level + 1])
            lows[level + 1], highs[level + 1] = low, middle
        else:
            _add_whole(m, n, low, middle, tables[level + 1])
            lows[level + 1], highs[level + 1] = middle, high
        stages[level] += 1
        level += 1
        stages[level] = 0
    return edges, partial, nodes


@kernel
def choose_whole(m: Int64s, n: Int64s, without: int, k: int, best: Int64s, taken: Bytes, whole: Bytes) -> None:
    """Set ``whole`` for the components, other than ``without``, with k nodes in total and the most edges.

    ``best`` is scratch space for k + 1 entries; ``taken`` has a row of bits for each component, all zero.
    """
    best[:] = _UNREACHED
    best[0] = 0
    for i in range(m.size):
        if i == without:
            continue
        size, edges = m[i] + n[i], m[i] * n[i]
        for j in range(k, size - 1, -1):
            if best[j - size] != _UNREACHED and best[j - size] + edges > best[j]:
                best[j] = best[j - size] + edges
                taken[i, j >> 3] |= np.uint8(1 << (j & 7))
    j = k
    for i in range(m.size - 1, -1, -1):
        if i != without and taken[i, j >> 3] >> np.uint8(j & 7) & 1:
            whole[i] = 1
            j -= m[i] + n[i]


@kernel(allocates=True)
def add_component(m: int, n: int, before: Table, after: Table, queue: Int64s) -> None:
    """Compute ``after[a, b]``, the most edges with at most a and b nodes of the two sides, if K(m, n) may be used too.

    K(m, n) is used with all of one side and any number of the other. The gain of p nodes with all n is linear in p,
    so the best p is the maximum of a sliding window. ``queue`` is scratch space for it.
    """
    after[:] = before
    most_a, most_b = before.shape[0] - 1, before.shape[1] - 1
    for b in range(n, most_b + 1):
        head = tail = 0
        for a in range(1, most_a + 1):
            value = before[a - 1, b - n] - (a - 1) * n
            while tail > head and before[queue[tail - 1], b - n] - queue[tail - 1] * n <= value:
                tail -= 1
            queue[tail] = a - 1
            tail += 1
            while queue[head] < a - m:
                head += 1
            after[a, b] = max(after[a, b], before[queue[head], b - n] + (a - queue[head]) * n)
    for a in range(m, most_a + 1):
        head = tail = 0
        for b in range(1, most_b + 1):
            value = before[a - m, b - 1] - (b - 1) * m
            while tail > head and before[a - m, queue[tail - 1]] - queue[tail - 1] * m <= value:
                tail -= 1
            queue[tail] = b - 1
            tail += 1
            while queue[head] < b - n:
                head += 1
            after[a, b] = max(after[a, b], before[a - m, queue[head]] + (b - queue[head]) * m)


@kernel(allocates=True)
def find_partial_of_both(m: Int64s, n: Int64s, k_a: int, k_b: int) -> tuple[int, int, int, int]:
    """Return the most edges among k_a and k_b nodes, the component taken in part on both sides, and its nodes.

    Works like `find_partial`, with tables of (k_a + 1) x (k_b + 1).
    """
    levels = 2
    while (1 << (levels - 2)) < m.size:
        levels += 1
    tables = np.zeros((levels, k_a + 1, k_b + 1), dtype=np.int64)
    spare = np.empty((k_a + 1, k_b + 1), dtype=np.int64)
    queue = np.empty(max(k_a, k_b) + 1, dtype=np.int64)
    lows, highs, stages = np.zeros(levels, np.int64), np.zeros(levels, np.int64), np.zeros(levels, np.int64)
    highs[0] = m.size
    level = 0
    edges, partial, of_a, of_b = -1, 0, 0, 0
    while level >= 0:
        low, high = lows[level], highs[level]
        if high - low == 1:
            for p in range(min(m[low], k_a) + 1):
                for q in range(min(n[low], k_b) + 1):
                    total = tables[level, k_a - p, k_b - q] + p * q
                    if total > edges:
                        edges, partial, of_a, of_b = total, low, p, q
            level -= 1
            continue
        if stages[level] == 2:
            level -= 1
            continue
        middle = (low + high) // 2
        if stages[level] == 0:
            first, last = middle, high
            lows[level + 1], highs[level + 1] = low, middle
        else:
            first, last = low, middle
            lows[level + 1], highs[level + 1] = middle, high
        tables[level + 1] = tables[level]
        for i in range(first, last):
            add_component(m[i], n[i], tables[level + 1], spare, queue)
            tables[level + 1] = spare
        stages[level] += 1
        level += 1
        stages[level] = 0
    return edges, partial, of_a, of_b


@kernel(allocates=True)
def choose_of_both(
    m: Int64s, n: Int64s, without: int, k_a: int, k_b: int, tables: npt.NDArray[np.int64], p: Int64s, q: Int64s
) -> None:
    """Set ``p`` and ``q`` for the components, other than ``without``, with the most edges among k_a and k_b nodes.

    ``tables`` is scratch space for one table of (k_a + 1) x (k_b + 1) more than there are components.
    """
    queue = np.empty(max(k_a, k_b) + 1, dtype=np.int64)
    tables[0] = 0
    for i in range(m.size):
        if i == without:
            tables[i + 1] = tables[i]
        else:
            add_component(m[i], n[i], tables[i], tables[i + 1], queue)
    a, b = k_a, k_b
    for i in range(m.size - 1, -1, -1):
        if i == without or tables[i + 1, a, b] == tables[i, a, b]:
            continue
        for nodes in range(1, min(m[i], a) + 1):
            if b >= n[i] and tables[i, a - nodes, b - n[i]] + nodes * n[i] == tables[i + 1, a, b]:
                p[i], q[i] = nodes, n[i]
                break
        if p[i] == 0:
            for nodes in range(1, min(n[i], b) + 1):
                if a >= m[i] and tables[i, a - m[i], b - nodes] + nodes * m[i] == tables[i + 1, a, b]:
                    p[i], q[i] = m[i], nodes
                    break
        a -= p[i]
        b -= q[i]
