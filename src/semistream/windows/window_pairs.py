"""Window pairs: all pairs of tuples that a window join without any bound on memory gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidArgument
from semistream.kernels.types import Bools, Int64s
from semistream.windows.row_codes import NULL, Rows, row_codes
from semistream.windows.timeline import Arrivals, Timeline, Unit, Window, arrival_times


@dataclass(frozen=True)
class WindowPairs:
    """Pairs as row numbers of the left and of the right stream."""

    left: Int64s
    right: Int64s

    def __len__(self) -> int:
        return self.left.size

    def chosen(self, which: Bools) -> WindowPairs:
        """Those of which ``which`` is true."""
        return WindowPairs(self.left[which], self.right[which])

    def within(self, line: Timeline) -> WindowPairs:
        """Those of which the younger arrives before the older leaves its window."""
        left_at, right_at = line.left.at[self.left], line.right.at[self.right]
        met = np.where(left_at < right_at, right_at < line.left.end[self.left], left_at < line.right.end[self.right])
        return self.chosen(met | (left_at == right_at))


def window_pairs(
    left: Rows,
    right: Rows,
    *,
    window: Window | tuple[Window, Window],
    unit: Unit = "time",
    left_times: npt.ArrayLike | None = None,
    right_times: npt.ArrayLike | None = None,
) -> WindowPairs:
    """All pairs of rows with equal keys that are in one window: the exact result of a sliding-window join.

    Parameters and window are those of `optimal_offline`. Pairs come in no promised order.

    >>> pairs = window_pairs(np.array([1, 1, 1, 3, 2]), np.array([2, 3, 1, 1, 3]), window=3)
    >>> sorted(zip(pairs.left.tolist(), pairs.right.tolist()))
    [(0, 2), (1, 2), (1, 3), (2, 2), (2, 3), (3, 1), (3, 4)]
    """
    left_at = arrival_times("left", left_times, len(left))
    right_at = arrival_times("right", right_times, len(right))
    left_codes, right_codes = row_codes(left, right)
    return equal_pairs(left_codes, right_codes, Timeline.of(left_at, right_at, window, unit))


def equal_pairs(left_codes: Int64s, right_codes: Int64s, line: Timeline) -> WindowPairs:
    """The pairs with equal codes that are in one window."""
    older_left = _younger_partners(left_codes, line.left, right_codes, line.right, line.instants.size)
    right, left = _younger_partners(right_codes, line.right, left_codes, line.left, line.instants.size)
    beside = _partners(left_codes, line.left.at, line.left.at + 1, right_codes, line.right.at, line.instants.size)
    return WindowPairs(*(np.concatenate(rows) for rows in zip(older_left, (left, right), beside, strict=True)))


def given_pairs(pairs: tuple[npt.ArrayLike, npt.ArrayLike], left_rows: int, right_rows: int) -> WindowPairs:
    """Pairs that a user gives, checked: rows that are there, and no pair twice."""
    if len(pairs) != 2:
        raise InvalidArgument(f"pairs has {len(pairs)} parts; give two: rows of the left stream, and of the right.")
    left, right = _row_numbers("left", pairs[0], left_rows), _row_numbers("right", pairs[1], right_rows)
    if left.size != right.size:
        raise InvalidArgument(f"pairs has {left.size} left and {right.size} right rows; give as many of each.")
    numbers, counts = np.unique(left * max(1, right_rows) + right, return_counts=True)
    if numbers.size < left.size:
        pair = divmod(int(numbers[counts > 1][0]), right_rows)
        raise InvalidArgument(f"pairs has {pair} twice; give each pair of rows once, with its weight if need be.")
    return WindowPairs(left, right)


def _row_numbers(name: str, rows: npt.ArrayLike, most: int) -> Int64s:
    array = np.asarray(rows)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InvalidArgument(f"{name} rows of pairs are {array.dtype} of {array.ndim} dimensions; give row numbers.")
    if array.min() < 0 or array.max() >= most:
        raise InvalidArgument(f"pairs names {name} row {array.max()}, lowest {array.min()}; there are 0 to {most - 1}.")
    return array.astype(np.int64)


def _younger_partners(
    codes: Int64s, side: Arrivals, other_codes: Int64s, other: Arrivals, instants: int
) -> tuple[Int64s, Int64s]:
    """Pairs of a row and a partner in the other stream that arrives later, before the row leaves the window."""
    return _partners(codes, side.at + 1, side.end, other_codes, other.at, instants)


def _partners(
    codes: Int64s, begin: Int64s, end: Int64s, other_codes: Int64s, other_at: Int64s, instants: int
) -> tuple[Int64s, Int64s]:
    """Pairs of a row and a row of the other stream that has its code and arrives in [begin, end)."""
    span = instants + 1
    places = other_codes * span + other_at
    order = np.argsort(places, kind="stable")
    places = places[order]
    low = np.searchsorted(places, codes * span + begin)
    high = np.searchsorted(places, codes * span + end)
    found = np.where(codes == NULL, 0, np.maximum(high - low, 0))
    rows = np.repeat(np.arange(codes.size), found)
    offsets = np.arange(rows.size) - np.repeat(np.cumsum(found) - found, found)
    return rows, order[np.repeat(low, found) + offsets]
