"""NDG, node degree greedy: drop so many tuples of each relation, those with the fewest partners."""

from __future__ import annotations

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.types import Int64s
from semistream.windows.row_codes import Rows
from semistream.windows.truncated import JoinComponents, TruncatedJoin, retained_of


def ndg(
    left: Rows, right: Rows, *, retain: tuple[int, int] | None = None, drop: tuple[int, int] | None = None
) -> TruncatedJoin:
    """A truncated equi-join that loses at most twice the results that must be lost, in O(rows + keys log keys).

    ``retain`` or ``drop`` says how many tuples of the left and of the right relation. One relation's tuples with the
    fewest partners are dropped first, then the other's with the fewest partners that remain; both orders are tried,
    and the better is given.

    >>> ndg(np.array([1, 1, 2]), np.array([2, 1, 1]), drop=(1, 1)).results
    4

    Notes
    -----
    WINDOW 3.3.1, Theorem 1: the results lost are at most twice the optimum's, as any choice loses at least what either
    relation alone loses. The theorem's other half, that at least half of the results are retained that could be, does
    not hold, in either order: of ten K(1, 100), ten K(100, 1) and one K(10, 10), retaining ten tuples of each relation,
    it takes the ten of the one that have 100 partners each, of which ten can stay: 10 results, where K(10, 10) has 100.
    With the degrees of the original graph on both sides, which the paper allows too, there would be none at all.
    """
    parts = JoinComponents(left, right)
    amount = retained_of(parts, retain, drop)
    if not isinstance(amount, tuple):
        raise InvalidArgument(f"NDG takes a number of tuples for each relation, not {amount}; use adg for one in all.")
    of_left, of_right = amount
    p = most_connected(parts.m, parts.n, of_left)
    left_first = parts.retained(p, most_connected(parts.n, p, of_right), of_left, of_right)
    q = most_connected(parts.n, parts.m, of_right)
    right_first = parts.retained(most_connected(parts.m, q, of_left), q, of_left, of_right)
    return max(left_first, right_first, key=lambda join: join.results)


def most_connected(sizes: Int64s, degrees: Int64s, rows: int) -> Int64s:
    """How many tuples of each component are among the ``rows`` with the highest degrees.

    >>> most_connected(np.array([2, 5, 3]), np.array([7, 1, 9]), 6).tolist()
    [2, 1, 3]
    """
    order = np.argsort(-degrees, kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    chosen = np.empty_like(sizes)
    chosen[order] = np.clip(rows - before, 0, sizes[order])
    return chosen
