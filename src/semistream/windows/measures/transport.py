"""Transport measures: how far an approximate result is from the exact one if rows that differ may still be near.

Both need a distance between rows. By default it is Euclidean: numbers, dates and times differ by what lies between
them, other values by 1 if they are not equal; a null, or NaN, differs from a value by 1. Another distance is a function
of two tables that gives a matrix, a line for each row of the first and a column for each of the second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.windows.measures.sets import same_columns
from semistream.windows.optimum.min_cost_flow import least_cost_flow, whole_costs
from semistream.windows.row_codes import row_codes

Matrix: TypeAlias = npt.NDArray[np.float64]
Distance: TypeAlias = Callable[[pa.Table, pa.Table], Matrix]
Combine: TypeAlias = Callable[[Matrix, Int64s, Int64s], float]
MOST_ENTRIES = 10**7


def euclidean(one: pa.Table, other: pa.Table) -> Matrix:
    """The default distance.

    >>> euclidean(pa.table({"x": [0, 3], "name": ["a", "b"]}), pa.table({"x": [0], "name": ["a"]})).round(3).tolist()
    [[0.0], [3.162]]
    """
    squares = np.zeros((one.num_rows, other.num_rows))
    for a, b in zip(one.columns, other.columns, strict=True):
        if pa.types.is_boolean(a.type) or not _is_number(a.type):
            values, others = row_codes(a, b, nulls_match=True)
            squares += values[:, None] != others[None, :]
            continue
        left, right = _numbers(a), _numbers(b)
        with np.errstate(invalid="ignore"):  # infinity is at no distance from itself
            apart = np.square(left[:, None] - right[None, :])
        one_null = np.isnan(left)[:, None] != np.isnan(right)[None, :]
        squares += np.where(one_null, 1.0, np.nan_to_num(apart, nan=0.0, posinf=np.inf))
    return np.sqrt(squares)


def earth_movers_distance(approximate: pa.Table, exact: pa.Table, distance: Distance = euclidean) -> float:
    """EMD: the least work, rows times distance, that turns the approximate result into as many rows of the exact one.

    The exact result has at least as many rows; those that nothing is moved to cost nothing, so it is 0 for a subset.

    >>> earth_movers_distance(pa.table({"x": [1, 5]}), pa.table({"x": [2, 5, 9]}))
    1.0

    References
    ----------
    WINDOW 2.2, after Rubner, Tomasi & Guibas (1998), who divide the work by the rows moved: here it is not divided.
    """
    if approximate.num_rows > exact.num_rows:
        raise InvalidArgument(
            f"The approximate result has {approximate.num_rows} rows, the exact one {exact.num_rows}; the earth "
            "mover's distance is to a table of as many rows or more. Exchange them."
        )
    if approximate.num_rows == 0:
        return 0.0
    (left, left_count), (right, right_count) = _distinct(approximate), _distinct(exact)
    away = _distances(left, right, distance)
    n, m = away.shape
    costs, worth = whole_costs(away.ravel(), n + m + 1)
    tails = np.concatenate([np.repeat(np.arange(n), m), n + np.arange(m)])
    heads = np.concatenate([np.tile(n + np.arange(m), n), np.full(m, n + m)])
    _, cost = least_cost_flow(
        tails.astype(np.int32),
        heads.astype(np.int32),
        np.concatenate([np.repeat(left_count, m), right_count]),
        np.concatenate([costs, np.zeros(m, dtype=np.int64)]),
        np.concatenate([left_count, np.zeros(m, dtype=np.int64), [-approximate.num_rows]]),
    )
    return cost * worth


def surplus(weights: Matrix, left_edges: Int64s, right_edges: Int64s) -> float:
    """What `match_and_compare` makes of a cover by default: its weights, and 1 for each edge beyond one at a row."""
    return float(weights.sum() + (left_edges - 1).sum() + (right_edges - 1).sum())


def match_and_compare(
    approximate: pa.Table, exact: pa.Table, distance: Distance = euclidean, combine: Combine = surplus
) -> float:
    """MAC: match each row of both results with at least one of the other as cheaply as can be, and weigh the matches.

    The cover of least total distance is taken, and of those one with the fewest edges. ``combine`` gets the distances
    of its edges, and how many of them meet at each row of the approximate and of the exact result. It is 0 for equal
    tables, and infinite if just one is empty, as then nothing can be matched.

    >>> match_and_compare(pa.table({"x": [1, 5]}), pa.table({"x": [1, 5, 7]}))  # 7 with 5, which then has two
    3.0

    References
    ----------
    WINDOW 2.2, after Ioannidis & Poosala (1999). WINDOW says what MAC depends on, the weights of the cover's edges and
    the number of edges at each node, but not how; the default `surplus` is our choice.
    """
    same_columns(approximate, exact)
    if not approximate.num_rows or not exact.num_rows:
        return 0.0 if approximate.num_rows == exact.num_rows else np.inf
    away = _distances(approximate, exact, distance)
    n, m = away.shape
    edge_cost, _ = whole_costs(away.ravel(), 4 * (n + m + 1) ** 2)  # room for what comes next
    edge_cost = edge_cost * (n + m) + 1  # of covers with equal weight, the fewest edges: there are fewer than n + m
    hub, left, right = n + m, np.arange(n), n + np.arange(m)
    # Each left row sends one unit and each right row takes one; more come from the hub and go back to it.
    tails = np.concatenate([np.repeat(left, m), np.full(n, hub), right])
    heads = np.concatenate([np.tile(right, n), left, np.full(m, hub)])
    flows, _ = least_cost_flow(
        tails.astype(np.int32),
        heads.astype(np.int32),
        np.concatenate([np.ones(n * m, dtype=np.int64), np.full(n, m), np.full(m, n)]),
        np.concatenate([edge_cost, np.zeros(n + m, dtype=np.int64)]),
        np.concatenate([np.ones(n, dtype=np.int64), np.full(m, -1), [m - n]]),
    )
    cover = flows[: n * m].reshape(n, m)
    return combine(away[cover > 0], cover.sum(axis=1), cover.sum(axis=0))


def _distances(left: pa.Table, right: pa.Table, distance: Distance) -> Matrix:
    same_columns(left, right)
    if left.num_rows * right.num_rows > MOST_ENTRIES:
        raise InvalidArgument(
            f"{left.num_rows} by {right.num_rows} distances are more than {MOST_ENTRIES}; compare samples of both."
        )
    away = np.asarray(distance(left, right), dtype=np.float64)
    if away.shape != (left.num_rows, right.num_rows) or not (away >= 0).all():
        raise InvalidArgument(
            f"distance gave a matrix of shape {away.shape}, least {away.min(initial=0)}, for {left.num_rows} by "
            f"{right.num_rows} rows; return a number of 0 or more for each pair of rows."
        )
    return away


def _distinct(table: pa.Table) -> tuple[pa.Table, Int64s]:
    (codes,) = row_codes(table, nulls_match=True)
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return table.take(pa.array(first)), counts.astype(np.int64)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_temporal(kind)
    )


def _numbers(column: pa.ChunkedArray) -> Matrix:
    """Values as floats, null as NaN; dates and times as the number of their units."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
