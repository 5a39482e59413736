"""ADG, average degree greedy: drop so many tuples of two relations, key by key, those of the least productive keys."""

from __future__ import annotations

import numpy as np

from semistream.errors import InvalidArgument
from semistream.windows.node_degree import most_connected
from semistream.windows.optdp import balanced
from semistream.windows.row_codes import Rows
from semistream.windows.truncated import JoinComponents, TruncatedJoin, retained_of


def adg(left: Rows, right: Rows, *, retain: int | None = None, drop: int | None = None) -> TruncatedJoin:
    """A truncated equi-join that loses at most twice what must be lost, and retains at least half of what can be.

    ``retain`` or ``drop`` is a number of tuples, of either relation. Keys are taken whole in the order of their results
    per tuple, m n / (m + n); of the last one, as many tuples of each relation as can be. O(rows + keys log keys).

    >>> adg(np.array([1, 1, 1, 2]), np.array([2, 2, 1, 1]), retain=5).results
    6

    References
    ----------
    WINDOW 3.3.2, Theorem 2; in its experiments over 99.5 % of what `optdp` retains.
    """
    parts = JoinComponents(left, right)
    amount = retained_of(parts, retain, drop)
    if isinstance(amount, tuple):
        raise InvalidArgument(f"ADG takes one number of tuples, not {amount}; use ndg for one of each relation.")
    sizes = parts.m + parts.n
    nodes = most_connected(sizes, parts.m * parts.n / np.maximum(1, sizes), amount)
    p, q = np.where(nodes == sizes, parts.m, 0), np.where(nodes == sizes, parts.n, 0)
    for i in np.flatnonzero((nodes > 0) & (nodes < sizes)):  # one at most
        p[i], q[i] = balanced(int(parts.m[i]), int(parts.n[i]), int(nodes[i]))
    more = amount - int(nodes.sum())
    of_left = min(more, parts.left_rows - int(p.sum()))
    return parts.retained(p, q, int(p.sum()) + of_left, int(q.sum()) + more - of_left)
