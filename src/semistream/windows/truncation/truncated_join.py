"""TruncatedJoin: the retained tuples of two relations, and the number of their results."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.windows.row_codes import Rows, row_codes

Amount: TypeAlias = int | tuple[int, int]


@dataclass(frozen=True)
class TruncatedJoin:
    """Result of a truncation of two relations: the retained rows, and the number of their results.

    Parameters
    ----------
    left, right : array of int
        Numbers of the retained rows of each relation, ascending.
    results : int
        Results that remain.
    exact : int
        Results of the join of all tuples.

    Examples
    --------
    >>> from semistream.windows import optdp
    >>> join = optdp(np.array([1, 1, 2]), np.array([1, 2, 2]), retain=4)
    >>> join.left.tolist(), join.right.tolist(), join.results, join.exact, join.lost
    ([2], [0, 1, 2], 2, 4, 2)

    References
    ----------
    WINDOW 3.1.
    """

    left: Int64s
    right: Int64s
    results: int
    exact: int

    @property
    def lost(self) -> int:
        """Number of results lost: the MAX-subset error."""
        return self.exact - self.results


class JoinComponents:
    """Join graph of two relations: for each common key, every left tuple is connected to every right tuple.

    WINDOW 3.1 calls these Kurotowski components K(m, n). ``m`` and ``n`` are their sizes on the left and the right.
    Tuples without a partner belong to no component.

    >>> parts = JoinComponents(np.array([1, 1, 2, 5]), np.array([2, 1, 2, 2, 9]))
    >>> parts.m.tolist(), parts.n.tolist(), parts.exact
    ([2, 1], [1, 3], 5)
    """

    def __init__(self, left: Rows, right: Rows) -> None:
        left_codes, right_codes = row_codes(left, right)
        keys = np.intersect1d(left_codes, right_codes)
        keys = keys[keys >= 0]
        self._left, self._right = _RowsByKey(left_codes, keys), _RowsByKey(right_codes, keys)
        self.m, self.n = self._left.sizes, self._right.sizes
        self.left_rows, self.right_rows = left_codes.size, right_codes.size

    @property
    def exact(self) -> int:
        """Number of results of the join of all tuples."""
        return int(self.m @ self.n)

    def retained(self, p: Int64s, q: Int64s, left_rows: int, right_rows: int) -> TruncatedJoin:
        """Retain ``p`` and ``q`` tuples of each component, and more up to ``left_rows`` and ``right_rows`` in total."""
        left, p = self._left.first(p, left_rows)
        right, q = self._right.first(q, right_rows)
        return TruncatedJoin(left, right, int(p @ q), self.exact)


class _RowsByKey:
    """Rows of one relation grouped by key, followed by the rows without a partner."""

    def __init__(self, codes: Int64s, keys: Int64s) -> None:
        place = np.searchsorted(keys, codes)
        alone = ~np.isin(codes, keys)
        place[alone] = keys.size
        self._order = np.argsort(place, kind="stable")
        self.sizes = np.bincount(place, minlength=keys.size + 1)[: keys.size]

    def first(self, counts: Int64s, rows: int) -> tuple[Int64s, Int64s]:
        """Return the first ``counts`` rows of each key, and more up to ``rows``, preferably without partner.

        Also returns the resulting number of rows of each key.
        """
        matched = int(self.sizes.sum())
        key = np.repeat(np.arange(self.sizes.size), self.sizes)
        number = np.arange(matched) - (np.cumsum(self.sizes) - self.sizes)[key]
        chosen = number < counts[key]
        spare = np.concatenate([self._order[matched:], self._order[:matched][~chosen]])
        spare_key = np.concatenate([np.full(self._order.size - matched, self.sizes.size), key[~chosen]])
        more = rows - int(chosen.sum())
        extra = np.bincount(spare_key[:more], minlength=self.sizes.size + 1)[: self.sizes.size]
        return np.sort(np.concatenate([self._order[:matched][chosen], spare[:more]])), counts + extra


def retained_of(parts: JoinComponents, retain: Amount | None, drop: Amount | None) -> Amount:
    """Return the number of tuples retained, in total or of each relation, from either ``retain`` or ``drop``."""
    if (retain is None) == (drop is None):
        raise InvalidArgument(f"retain is {retain!r} and drop is {drop!r}; give one of them.")
    amount = drop if retain is None else retain
    name = "drop" if retain is None else "retain"
    if isinstance(amount, tuple):
        if len(amount) != 2:
            raise InvalidArgument(f"{name} is {amount!r}; give a number, or two for the left and the right relation.")
        sizes = (parts.left_rows, parts.right_rows)
        left, right = (_amount(name, each, most) for each, most in zip(amount, sizes, strict=True))
        return (left, right) if drop is None else (sizes[0] - left, sizes[1] - right)
    most = parts.left_rows + parts.right_rows
    number = _amount(name, amount, most)
    return number if drop is None else most - number


def _amount(name: str, value: object, most: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number <= most:
        raise InvalidArgument(f"{name} is {value!r}; give a whole number of tuples from 0 to {most}.")
    return number
