"""Greedy truncation of a join, by two algorithms.

NDG, node degree greedy, drops the tuples of each relation with the fewest partners. ADG, average degree greedy, drops
the tuples of the least productive keys of both relations together.
"""

from __future__ import annotations

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.windows.row_codes import Rows
from semistream.windows.truncation.optdp import balanced
from semistream.windows.truncation.truncated_join import JoinComponents, TruncatedJoin, retained_of


def ndg(
    left: Rows, right: Rows, *, retain: tuple[int, int] | None = None, drop: tuple[int, int] | None = None
) -> TruncatedJoin:
    """Truncate an equi-join by NDG, losing at most twice as many results as necessary; O(rows + keys log keys).

    One relation drops its tuples with the fewest partners first, then the other those with the fewest remaining
    partners. Both orders are tried, and the better result is returned.

    Parameters
    ----------
    left, right : array or table
        Keys of the relations: an Arrow or NumPy column, or a table of key columns. Nulls never match.
    retain : tuple of two int, optional
        Numbers of tuples to retain, of the left and the right relation. Give this or ``drop``.
    drop : tuple of two int, optional
        Numbers of tuples to drop.

    Examples
    --------
    >>> ndg(np.array([1, 1, 2]), np.array([2, 1, 1]), drop=(1, 1)).results
    4

    Notes
    -----
    NDG loses at most twice as many results as the optimum (Theorem 1), because every choice loses at least what either
    relation alone loses. The other half of the theorem, that it retains at least half of the results that could be
    retained, does not hold in either order. Take ten K(1, 100), ten K(100, 1) and one K(10, 10), and retain ten tuples
    of each relation. NDG takes the ten tuples of one relation with 100 partners each, of which ten can stay: 10
    results, while K(10, 10) has 100. With the degrees of the original graph on both sides, which the paper also allows,
    there would be no results at all.

    References
    ----------
    WINDOW 3.3.1, Theorem 1.
    """
    parts = JoinComponents(left, right)
    amount = retained_of(parts, retain, drop)
    if not isinstance(amount, tuple):
        raise InvalidArgument(f"NDG takes a number of tuples for each relation, not {amount}; use adg for one number.")
    of_left, of_right = amount
    p = most_connected(parts.m, parts.n, of_left)
    left_first = parts.retained(p, most_connected(parts.n, p, of_right), of_left, of_right)
    q = most_connected(parts.n, parts.m, of_right)
    right_first = parts.retained(most_connected(parts.m, q, of_left), q, of_left, of_right)
    return max(left_first, right_first, key=lambda join: join.results)


def most_connected(sizes: Int64s, degrees: Int64s, rows: int) -> Int64s:
    """Return each component's number of tuples among the ``rows`` tuples with the highest degrees.

    >>> most_connected(np.array([2, 5, 3]), np.array([7, 1, 9]), 6).tolist()
    [2, 1, 3]
    """
    order = np.argsort(-degrees, kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    chosen = np.empty_like(sizes)
    chosen[order] = np.clip(rows - before, 0, sizes[order])
    return chosen


def adg(left: Rows, right: Rows, *, retain: int | None = None, drop: int | None = None) -> TruncatedJoin:
    """Truncate an equi-join by ADG, losing at most twice the results of the optimum and retaining at least half.

    Keys are taken whole in the order of their results per tuple, m n / (m + n). The last key is taken in part, with
    nearly equal numbers of tuples from both relations. O(rows + keys log keys).

    Parameters
    ----------
    left, right : array or table
        Keys of the relations: an Arrow or NumPy column, or a table of key columns. Nulls never match.
    retain : int, optional
        Number of tuples to retain, of both relations together. Give this or ``drop``.
    drop : int, optional
        Number of tuples to drop.

    Examples
    --------
    >>> adg(np.array([1, 1, 1, 2]), np.array([2, 2, 1, 1]), retain=5).results
    6

    References
    ----------
    WINDOW 3.3.2, Theorem 2. In its experiments ADG retains over 99.5 % of the results that `optdp` retains.
    """
    parts = JoinComponents(left, right)
    amount = retained_of(parts, retain, drop)
    if isinstance(amount, tuple):
        raise InvalidArgument(f"ADG takes one number of tuples, not {amount}; use ndg for a number for each relation.")
    sizes = parts.m + parts.n
    nodes = most_connected(sizes, parts.m * parts.n / np.maximum(1, sizes), amount)
    p, q = np.where(nodes == sizes, parts.m, 0), np.where(nodes == sizes, parts.n, 0)
    for i in np.flatnonzero((nodes > 0) & (nodes < sizes)):  # at most one
        p[i], q[i] = balanced(int(parts.m[i]), int(parts.n[i]), int(nodes[i]))
    more = amount - int(nodes.sum())
    of_left = min(more, parts.left_rows - int(p.sum()))
    return parts.retained(p, q, int(p.sum()) + of_left, int(q.sum()) + more - of_left)
