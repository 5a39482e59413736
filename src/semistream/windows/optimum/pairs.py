"""Window pairs: the pairs of tuples that a window join with unlimited memory produces."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bools, Int64s
from semistream.windows.optimum.timeline import Lifetimes, Timeline, Unit, Window, arrival_times
from semistream.windows.row_codes import NULL, Rows, row_codes


@dataclass(frozen=True)
class WindowPairs:
    """Pairs as row numbers of the left and of the right stream.

    ``len`` is the number of pairs.

    Parameters
    ----------
    left, right : array of int
        Row numbers, one of each for every pair.

    Examples
    --------
    >>> pairs = window_pairs(np.array([1, 2]), np.array([2, 1]), window=2)
    >>> len(pairs), sorted(zip(pairs.left.tolist(), pairs.right.tolist()))
    (2, [(0, 1), (1, 0)])

    References
    ----------
    WINDOW 2.1.
    """

    left: Int64s
    right: Int64s

    def __len__(self) -> int:
        return self.left.size

    def chosen(self, which: Bools) -> WindowPairs:
        """Return the pairs for which ``which`` is true."""
        return WindowPairs(self.left[which], self.right[which])

    def within(self, line: Timeline) -> WindowPairs:
        """Return the pairs whose tuples are both in their windows when the younger one arrives."""
        now = np.maximum(line.left.at[self.left], line.right.at[self.right])
        return self.chosen((now < line.left.end[self.left]) & (now < line.right.end[self.right]))


def window_pairs(
    left: Rows,
    right: Rows,
    *,
    window: Window | tuple[Window, Window],
    unit: Unit = "time",
    left_times: npt.ArrayLike | None = None,
    right_times: npt.ArrayLike | None = None,
) -> WindowPairs:
    """Return all pairs of rows with equal keys in one window: the exact result of a sliding-window join.

    Each pair occurs once, in unspecified order.

    Parameters
    ----------
    left, right : array or table
        Keys of the two streams, in order of arrival: an Arrow or NumPy column, or a table of key columns. Nulls never
        match.
    window : number, array, None or a tuple of two
        Lifetime of a tuple in units of time or in tuples (``unit``), an array with one for each tuple, or None for an
        unbounded join; one for both streams, or one for each.
    unit : {"time", "tuples"}
        Unit of ``window``.
    left_times, right_times : array, optional
        Arrival times, ascending. Default: one tuple per time unit.

    Examples
    --------
    >>> pairs = window_pairs(np.array([1, 1, 1, 3, 2]), np.array([2, 3, 1, 1, 3]), window=3)
    >>> sorted(zip(pairs.left.tolist(), pairs.right.tolist()))
    [(0, 2), (1, 2), (1, 3), (2, 2), (2, 3), (3, 1), (3, 4)]

    References
    ----------
    WINDOW 2.1, Fig. 3.
    """
    line = _line(left, right, window, unit, left_times, right_times)
    left_codes, right_codes = row_codes(left, right)
    return equal_pairs(left_codes, right_codes, line)


def count_window_pairs(
    left: Rows,
    right: Rows,
    *,
    window: Window | tuple[Window, Window],
    unit: Unit = "time",
    left_times: npt.ArrayLike | None = None,
    right_times: npt.ArrayLike | None = None,
) -> int:
    """Return the number of `window_pairs`, the size of the exact result, in O(n log n) and without producing it.

    Parameters
    ----------
    left, right : array or table
        Keys of the two streams, in order of arrival: an Arrow or NumPy column, or a table of key columns. Nulls never
        match.
    window : number, array, None or a tuple of two
        Lifetime of a tuple in units of time or in tuples (``unit``), an array with one for each tuple, or None for an
        unbounded join; one for both streams, or one for each.
    unit : {"time", "tuples"}
        Unit of ``window``.
    left_times, right_times : array, optional
        Arrival times, ascending. Default: one tuple per time unit.

    Examples
    --------
    >>> count_window_pairs(np.zeros(10**5, int), np.zeros(10**5, int), window=None)
    10000000000

    References
    ----------
    WINDOW 2.1.
    """
    line = _line(left, right, window, unit, left_times, right_times)
    codes = row_codes(left, right)
    left_codes, right_codes = codes_in_window(codes[0], line.left), codes_in_window(codes[1], line.right)
    older_left = (left_codes, line.left.at, line.left.end, right_codes, line.right.at)  # or from the same instant
    older_right = (right_codes, line.right.at + 1, line.right.end, left_codes, line.left.at)
    return sum(int(_partner_places(*side, line.instants.size)[2].sum()) for side in (older_left, older_right))


def _line(
    left: Rows,
    right: Rows,
    window: Window | tuple[Window, Window],
    unit: Unit,
    left_times: npt.ArrayLike | None,
    right_times: npt.ArrayLike | None,
) -> Timeline:
    left_at, right_at = arrival_times("left", left_times, len(left)), arrival_times("right", right_times, len(right))
    return Timeline.of(left_at, right_at, window, unit)


def equal_pairs(left_codes: Int64s, right_codes: Int64s, line: Timeline) -> WindowPairs:
    """Return the pairs with equal codes whose tuples are both in their windows when the younger one arrives."""
    left_codes, right_codes = codes_in_window(left_codes, line.left), codes_in_window(right_codes, line.right)
    older_left = _younger_partners(left_codes, line.left, right_codes, line.right, line.instants.size)
    right, left = _younger_partners(right_codes, line.right, left_codes, line.left, line.instants.size)
    beside = _partners(left_codes, line.left.at, line.left.at + 1, right_codes, line.right.at, line.instants.size)
    return WindowPairs(*(np.concatenate(rows) for rows in zip(older_left, (left, right), beside, strict=True)))


def codes_in_window(codes: Int64s, side: Lifetimes) -> Int64s:
    """Return ``codes`` with `NULL` for tuples in no window."""
    return np.where(side.in_window, codes, NULL)


def given_pairs(pairs: tuple[npt.ArrayLike, npt.ArrayLike], left_rows: int, right_rows: int) -> WindowPairs:
    """Return pairs given by the user, after checking that the rows exist and no pair occurs twice."""
    if len(pairs) != 2:
        raise InvalidArgument(f"pairs has {len(pairs)} parts; give two, rows of the left and of the right stream.")
    left, right = _row_numbers("left", pairs[0], left_rows), _row_numbers("right", pairs[1], right_rows)
    if left.size != right.size:
        raise InvalidArgument(f"pairs has {left.size} left and {right.size} right rows; give the same number of each.")
    numbers, counts = np.unique(left * max(1, right_rows) + right, return_counts=True)
    if numbers.size < left.size:
        pair = divmod(int(numbers[counts > 1][0]), right_rows)
        raise InvalidArgument(f"pairs has {pair} twice; give each pair of rows once, with a weight if needed.")
    return WindowPairs(left, right)


def _row_numbers(name: str, rows: npt.ArrayLike, most: int) -> Int64s:
    array = np.asarray(rows)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InvalidArgument(f"{name} rows of pairs are {array.dtype} of {array.ndim} dimensions; give row numbers.")
    if array.min() < 0 or array.max() >= most:
        raise InvalidArgument(f"pairs has {name} rows {array.min()} to {array.max()}; give rows from 0 to {most - 1}.")
    return array.astype(np.int64)


def _younger_partners(
    codes: Int64s, side: Lifetimes, other_codes: Int64s, other: Lifetimes, instants: int
) -> tuple[Int64s, Int64s]:
    """Return pairs of a row and a partner in the other stream that arrives later, before the row leaves the window."""
    return _partners(codes, side.at + 1, side.end, other_codes, other.at, instants)


def _partners(
    codes: Int64s, begin: Int64s, end: Int64s, other_codes: Int64s, other_at: Int64s, instants: int
) -> tuple[Int64s, Int64s]:
    """Return pairs of a row and a row of the other stream with the same code that arrives in [begin, end)."""
    order, low, found = _partner_places(codes, begin, end, other_codes, other_at, instants)
    rows = np.repeat(np.arange(codes.size), found)
    offsets = np.arange(rows.size) - np.repeat(np.cumsum(found) - found, found)
    return rows, order[np.repeat(low, found) + offsets]


def _partner_places(
    codes: Int64s, begin: Int64s, end: Int64s, other_codes: Int64s, other_at: Int64s, instants: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Return the other stream's rows by code and instant, and the start and number of each row's partners in it."""
    span = instants + 1
    places = other_codes * span + other_at
    order = np.argsort(places, kind="stable")
    places = places[order]
    low = np.searchsorted(places, codes * span + begin)
    high = np.searchsorted(places, codes * span + end)
    return order, low, np.where(codes == NULL, 0, np.maximum(high - low, 0))
