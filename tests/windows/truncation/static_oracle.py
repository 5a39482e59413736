"""Static join approximation as WINDOW 3 writes it down: brute force, the plain dynamic programs, counted results."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import numpy as np

Component = tuple[int, int]


def relations(components: list[Component], alone: Component = (0, 0)) -> tuple[np.ndarray, np.ndarray]:
    """Two shuffled columns of keys with these components, and rows without a partner."""
    left = [key for key, (m, _) in enumerate(components) for _ in range(m)] + [-1] * alone[0]
    right = [key for key, (_, n) in enumerate(components) for _ in range(n)] + [-2] * alone[1]
    rng = np.random.default_rng(len(left) * 31 + len(right))
    return rng.permutation(np.array(left, np.int64)), rng.permutation(np.array(right, np.int64))


def count_results(left: np.ndarray, right: np.ndarray, left_rows: np.ndarray, right_rows: np.ndarray) -> int:
    """The results of the join of some rows."""
    a, b = Counter(left[left_rows].tolist()), Counter(right[right_rows].tolist())
    return sum(a[key] * b[key] for key in a)


def best_by_brute_force(left: np.ndarray, right: np.ndarray, retain: int | Component) -> int:
    """The most results of all choices of rows."""
    if isinstance(retain, tuple):
        choices = product(combinations(range(len(left)), retain[0]), combinations(range(len(right)), retain[1]))
        return max(count_results(left, right, np.array(a, np.intp), np.array(b, np.intp)) for a, b in choices)
    both = combinations(range(len(left) + len(right)), retain)
    rows = (np.array(chosen, np.intp) for chosen in both)
    return max(
        count_results(left, right, chosen[chosen < len(left)], chosen[chosen >= len(left)] - len(left))
        for chosen in rows
    )


def edges_retained(m: int, n: int, p: int) -> int:
    """C_{m,n}(p) of Lemma 1, as printed."""
    m, n = max(m, n), min(m, n)
    if p > 2 * n:
        return n * (p - n)
    return (p // 2) ** 2 if p % 2 == 0 else (p * p - 1) // 4


def plain_program(components: list[Component], k: int) -> int:
    """T(c, k) of WINDOW 3.2, as printed."""
    table = [0] + [-np.inf] * k
    for m, n in components:
        table = [max(table[j - p] + edges_retained(m, n, p) for p in range(min(j, m + n) + 1)) for j in range(k + 1)]
    return int(table[k])


def plain_program_of_both(components: list[Component], k_a: int, k_b: int) -> int:
    """T(c, k_A, k_B), the variant that 3.2 mentions: every number of nodes of each side of each component."""
    table = np.full((k_a + 1, k_b + 1), -np.inf)
    table[0, 0] = 0
    for m, n in components:
        after = table.copy()
        for p in range(min(m, k_a) + 1):
            for q in range(min(n, k_b) + 1):
                shifted = table[: k_a + 1 - p, : k_b + 1 - q] + p * q
                after[p:, q:] = np.maximum(after[p:, q:], shifted)
        table = after
    return int(table[k_a, k_b])
