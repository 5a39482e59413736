"""A truncated join: the tuples of two relations that are retained, and how many results they have."""

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
    """``left`` and ``right`` are the rows that are retained, ascending; ``results`` of the ``exact`` results remain."""

    left: Int64s
    right: Int64s
    results: int
    exact: int

    @property
    def lost(self) -> int:
        """Results that the dropped tuples took with them: the MAX-subset error."""
        return self.exact - self.results


class JoinComponents:
    """The join graph of two relations: for each key that both have, every tuple of the one with every one of the other.

    WINDOW 3.1 calls them Kurotowski components K(m, n). ``m`` and ``n`` are their sizes on the left and on the right;
    tuples without a partner belong to none.

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
        """How many results the join of all tuples has."""
        return int(self.m @ self.n)

    def retained(self, p: Int64s, q: Int64s, left_rows: int, right_rows: int) -> TruncatedJoin:
        """Retain ``p`` and ``q`` tuples of each component, and others up to ``left_rows`` and ``right_rows`` in all."""
        left, p = self._left.first(p, left_rows)
        right, q = self._right.first(q, right_rows)
        return TruncatedJoin(left, right, int(p @ q), self.exact)


class _RowsByKey:
    """One relation's rows, key by key, and those without a partner after them."""

    def __init__(self, codes: Int64s, keys: Int64s) -> None:
        place = np.searchsorted(keys, codes)
        alone = ~np.isin(codes, keys)
        place[alone] = keys.size
        self._order = np.argsort(place, kind="stable")
        self.sizes = np.bincount(place, minlength=keys.size + 1)[: keys.size]

    def first(self, counts: Int64s, rows: int) -> tuple[Int64s, Int64s]:
        """The first ``counts`` rows of each key and as many more as make ``rows``, without partner if possible."""
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
    """How many tuples are retained, whether that is given or how many are dropped: in all, or of each relation."""
    if (retain is None) == (drop is None):
        raise InvalidArgument(f"retain is {retain!r} and drop is {drop!r}; give one of them.")
    amount = drop if retain is None else retain
    name = "drop" if retain is None else "retain"
    if isinstance(amount, tuple):
        if len(amount) != 2:
            raise InvalidArgument(f"{name} is {amount!r}; give a number, or two: of the left relation, of the right.")
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
