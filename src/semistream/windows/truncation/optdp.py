"""OPTDP: retain the tuples of two relations so that their join loses the fewest results."""

from __future__ import annotations

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.windows.row_codes import Rows
from semistream.windows.truncation.kernels import choose_of_both, choose_whole, find_partial, find_partial_of_both
from semistream.windows.truncation.truncated_join import Amount, JoinComponents, TruncatedJoin, retained_of

MOST_TABLE_BYTES = 2**31


def optdp(left: Rows, right: Rows, *, retain: Amount | None = None, drop: Amount | None = None) -> TruncatedJoin:
    """Return the truncated equi-join with the most results, given the tuples to retain (dual) or to drop (primal).

    No other choice of as many tuples has more results.

    Parameters
    ----------
    left, right : array or table
        Keys of the relations: an Arrow or NumPy column, or a table of key columns. Nulls never match.
    retain : int or tuple of two int, optional
        Tuples to retain: one number for both relations together, or two for the left and the right one. Give this or
        ``drop``.
    drop : int or tuple of two int, optional
        Tuples to drop.

    Examples
    --------
    >>> colours, sizes = np.array(["red", "red", "red", "blue"]), np.array(["blue", "blue", "red", "red"])
    >>> join = optdp(colours, sizes, retain=5)
    >>> join.left.tolist(), join.right.tolist(), join.results, join.exact
    ([0, 1, 2], [2, 3], 6, 8)
    >>> optdp(colours, sizes, drop=(1, 3)).results
    3

    Notes
    -----
    WINDOW 3.2 fills a table T(i, j) of c components and k nodes, each entry from up to k others: O(c k^2). But
    C_{m,n}(p), the edges retained by p nodes of a component, is convex in p. In some optimum all components but one
    are therefore taken whole or not at all (the paper's Lemma 2). k c log c steps find that one, by a knapsack of
    whole components for all but each in turn.

    With a number for each side, the edges retained are p q, linear in each. Then in all components but one, one side
    is taken whole or not at all, and the best number of the other side is found in a constant number of steps per
    table entry. The tables take up to 2 GiB: c k_A k_B is at most 2**28.

    References
    ----------
    WINDOW 3.2, Lemmas 1 and 2.
    """
    parts = JoinComponents(left, right)
    amount = retained_of(parts, retain, drop)
    if isinstance(amount, tuple):
        return parts.retained(*_of_both(parts, *amount), *amount)
    p, q = _of_all(parts, min(amount, int((parts.m + parts.n).sum())))
    more = amount - int(p.sum() + q.sum())  # all tuples with a partner are retained already: add tuples without
    of_left = min(more, parts.left_rows - int(p.sum()))
    return parts.retained(p, q, int(p.sum()) + of_left, int(q.sum()) + more - of_left)


def balanced(m: int, n: int, nodes: int) -> tuple[int, int]:
    """Return the numbers of ``nodes`` of K(m, n) to take from each side to retain most edges: nearly equal (Lemma 1).

    >>> balanced(5, 2, 3), balanced(5, 2, 6), balanced(1, 9, 4)
    ((1, 2), (4, 2), (1, 3))
    """
    q = min(n, max(nodes - m, (nodes + 1) // 2))
    return nodes - q, q


def _of_all(parts: JoinComponents, k: int) -> tuple[Int64s, Int64s]:
    p, q = np.zeros_like(parts.m), np.zeros_like(parts.n)
    if not parts.m.size:
        return p, q
    _, partial, nodes = find_partial(parts.m, parts.n, k)
    rest = k - nodes
    _affordable((parts.m.size * (rest // 8 + 1)), f"{parts.m.size} keys and {k} tuples", "adg")
    taken, whole = np.zeros((parts.m.size, rest // 8 + 1), np.uint8), np.zeros(parts.m.size, np.uint8)
    choose_whole(parts.m, parts.n, partial, rest, np.empty(rest + 1, np.int64), taken, whole)
    p[whole == 1], q[whole == 1] = parts.m[whole == 1], parts.n[whole == 1]
    p[partial], q[partial] = balanced(int(parts.m[partial]), int(parts.n[partial]), nodes)
    return p, q


def _of_both(parts: JoinComponents, of_left: int, of_right: int) -> tuple[Int64s, Int64s]:
    p, q = np.zeros_like(parts.m), np.zeros_like(parts.n)
    k_a, k_b = min(of_left, int(parts.m.sum())), min(of_right, int(parts.n.sum()))
    if not parts.m.size:
        return p, q
    shape = (parts.m.size + 1, k_a + 1, k_b + 1)
    _affordable(8 * shape[0] * shape[1] * shape[2], f"{parts.m.size} keys and ({k_a}, {k_b}) tuples", "ndg")
    _, partial, some_a, some_b = find_partial_of_both(parts.m, parts.n, k_a, k_b)
    rest = (k_a - some_a + 1, k_b - some_b + 1)
    tables = np.empty((parts.m.size + 1, *rest), dtype=np.int64)
    choose_of_both(parts.m, parts.n, partial, k_a - some_a, k_b - some_b, tables, p, q)
    p[partial], q[partial] = some_a, some_b
    return p, q


def _affordable(nbytes: int, what: str, greedy: str) -> None:
    if nbytes > MOST_TABLE_BYTES:
        raise InvalidArgument(
            f"The optimum for {what} takes tables of {nbytes} bytes, more than {MOST_TABLE_BYTES}; use {greedy}, which "
            "loses at most twice as many results."
        )
