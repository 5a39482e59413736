"""Transport measures: the distance of an approximate result from the exact one, if different rows may be similar.

Both measures need a distance between rows. The default is Euclidean: numbers, dates and times differ by their
difference, other values by 1 if they are not equal, and a null or NaN differs from a value by 1. A custom distance is
a function of two tables that returns a matrix, with a line for each row of the first and a column for each row of the
second.
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
    """Return the default distance between the rows of two tables.

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
        with np.errstate(invalid="ignore"):  # infinity has distance 0 from itself
            apart = np.square(left[:, None] - right[None, :])
        one_null = np.isnan(left)[:, None] != np.isnan(right)[None, :]
        squares += np.where(one_null, 1.0, np.nan_to_num(apart, nan=0.0, posinf=np.inf))
    return np.sqrt(squares)


def earth_movers_distance(approximate: pa.Table, exact: pa.Table, distance: Distance = euclidean) -> float:
    """Return the EMD: the least work (rows times distance) to turn the approximate result into rows of the exact one.

    The optimum is exact up to the rounding of distances, by minimum-cost flow. Rows that receive nothing cost nothing,
    so the EMD of a subset is 0. Needs OR-tools (``pip install 'semistream[windows]'``).

    Parameters
    ----------
    approximate, exact : pyarrow.Table
        The results, with the same columns in the same order. The exact one must have at least as many rows. Their
        distinct rows may have at most 10**7 pairs.
    distance : callable
        Function of two tables that returns the matrix of distances between their rows, each at least 0. Default:
        Euclidean, where values other than numbers, dates and times differ by 1 if they are not equal.

    Examples
    --------
    >>> earth_movers_distance(pa.table({"x": [1, 5]}), pa.table({"x": [2, 5, 9]}))
    1.0

    References
    ----------
    WINDOW 2.2, after Rubner, Tomasi & Guibas (1998). They divide the work by the number of rows moved; this function
    does not.
    """
    if approximate.num_rows > exact.num_rows:
        raise InvalidArgument(
            f"The approximate result has {approximate.num_rows} rows, the exact one {exact.num_rows}; the earth "
            "mover's distance needs at least as many rows in the exact one. Swap the arguments."
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
    """Return the default score of a cover: its weights, plus 1 for each edge beyond the first at a row."""
    return float(weights.sum() + (left_edges - 1).sum() + (right_edges - 1).sum())


def match_and_compare(
    approximate: pa.Table, exact: pa.Table, distance: Distance = euclidean, combine: Combine = surplus
) -> float:
    """Return the MAC: the score of a cheapest matching of each row of both results with a row of the other.

    Takes a cover of least total distance, with the fewest edges among these. The score is 0 for equal tables, and
    infinite if exactly one is empty, because then nothing can be matched. Needs OR-tools
    (``pip install 'semistream[windows]'``).

    Parameters
    ----------
    approximate, exact : pyarrow.Table
        The results, with the same columns in the same order, and at most 10**7 pairs of rows.
    distance : callable
        Function of two tables that returns the matrix of distances between their rows, each at least 0. Default:
        Euclidean, as in `earth_movers_distance`.
    combine : callable
        Function of the distances of the cover's edges, and of the number of edges at each row of the approximate and of
        the exact result, that returns the score. Default: the sum of the distances, plus 1 for each edge beyond the
        first at a row.

    Examples
    --------
    >>> match_and_compare(pa.table({"x": [1, 5]}), pa.table({"x": [1, 5, 7]}))  # 7 with 5, which then has two
    3.0

    References
    ----------
    WINDOW 2.2, after Ioannidis & Poosala (1999). WINDOW says that MAC depends on the weights of the cover's edges and
    the number of edges at each node, but not how. The default `surplus` is our choice.
    """
    same_columns(approximate, exact)
    if not approximate.num_rows or not exact.num_rows:
        return 0.0 if approximate.num_rows == exact.num_rows else np.inf
    away = _distances(approximate, exact, distance)
    n, m = away.shape
    edge_cost, _ = whole_costs(away.ravel(), 4 * (n + m + 1) ** 2)  # leaves room for the next line
    edge_cost = edge_cost * (n + m) + 1  # fewest edges among covers of equal weight: there are fewer than n + m
    hub, left, right = n + m, np.arange(n), n + np.arange(m)
    # Each left row sends one unit and each right row takes one. Extra units come from the hub and return to it.
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
            f"distance returned a matrix of shape {away.shape}, smallest entry {away.min(initial=0)}, for "
            f"{left.num_rows} by {right.num_rows} rows; return a number of at least 0 for each pair of rows."
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
    """Return values as floats: nulls as NaN, dates and times as counts of their unit."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
