"""Set measures: similarity of an approximate and an exact result as multisets of rows (WINDOW 2.2).

Each measure takes two tables with the same columns, the approximate result X and the exact result Y. With c_X(v) and
c_Y(v) copies of a row v, the intersection has the smaller number of copies and the union the larger. Nulls are equal
to each other here. If X is a subset of Y, as for an equi-join that dropped tuples, all measures except `overlap`
(then always 1) agree: more rows are better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.windows.row_codes import row_codes


@dataclass(frozen=True)
class _Sizes:
    x: int
    y: int
    both: int

    @classmethod
    def of(cls, approximate: pa.Table, exact: pa.Table) -> _Sizes:
        same_columns(approximate, exact)
        x, y = row_codes(approximate, exact, nulls_match=True)
        rows = max(x.max(initial=-1), y.max(initial=-1)) + 1
        both = np.minimum(np.bincount(x, minlength=rows), np.bincount(y, minlength=rows)).sum()
        return cls(x.size, y.size, int(both))


def same_columns(approximate: pa.Table, exact: pa.Table) -> None:
    """Raise `InvalidArgument` unless both tables have the same columns in the same order."""
    if approximate.schema.names != exact.schema.names:
        raise InvalidArgument(
            f"The approximate result has the columns {approximate.schema.names}, the exact one {exact.schema.names}; "
            "select the same columns in the same order."
        )


def max_subset_error(approximate: pa.Table, exact: pa.Table) -> int:
    """Return the MAX-subset error: the number of missing rows.

    Raises `InvalidArgument` if the approximate result is not a subset of the exact one.

    Parameters
    ----------
    approximate, exact : pyarrow.Table
        The results X and Y as multisets of rows, with the same columns in the same order. Nulls equal each other.

    Examples
    --------
    >>> max_subset_error(pa.table({"key": [1, 2]}), pa.table({"key": [1, 2, 2, 3]}))
    2

    References
    ----------
    WINDOW 2.2, MAX-subset.
    """
    sizes = _Sizes.of(approximate, exact)
    if sizes.both < sizes.x:
        raise InvalidArgument(
            f"{sizes.x - sizes.both} of the {sizes.x} rows are not in the exact result; MAX-subset needs a subset. "
            "Use symmetric_difference."
        )
    return sizes.y - sizes.x


def symmetric_difference(approximate: pa.Table, exact: pa.Table) -> int:
    """Return |X - Y| + |Y - X|: wrong rows plus missing rows.

    For a subset this is the MAX-subset error.

    Parameters
    ----------
    approximate, exact : pyarrow.Table
        The results X and Y as multisets of rows, with the same columns in the same order. Nulls equal each other.

    Examples
    --------
    >>> symmetric_difference(pa.table({"key": [1, 7]}), pa.table({"key": [1, 2, 2]}))
    3

    References
    ----------
    WINDOW 2.2, symmetric difference.
    """
    sizes = _Sizes.of(approximate, exact)
    return sizes.x + sizes.y - 2 * sizes.both


def matching(approximate: pa.Table, exact: pa.Table) -> int:
    """Return the matching coefficient |X ∩ Y|, a number of rows.

    Parameters
    ----------
    approximate, exact : pyarrow.Table
        The results X and Y as multisets of rows, with the same columns in the same order. Nulls equal each other.

    Examples
    --------
    >>> matching(pa.table({"key": [1, 7]}), pa.table({"key": [1, 2, 2]}))
    1

    References
    ----------
    WINDOW 2.2, Matching coefficient.
    """
    return _Sizes.of(approximate, exact).both


def dice(approximate: pa.Table, exact: pa.Table) -> float:
    """Return the Dice coefficient 2 |X ∩ Y| / (|X| + |Y|), from 0 to 1; 1 for two empty tables.

    Parameters
    ----------
    approximate, exact : pyarrow.Table
        The results X and Y as multisets of rows, with the same columns in the same order. Nulls equal each other.

    Examples
    --------
    >>> dice(pa.table({"key": [1, 7]}), pa.table({"key": [1, 2]}))
    0.5

    References
    ----------
    WINDOW 2.2, Dice coefficient.
    """
    sizes = _Sizes.of(approximate, exact)
    return _share(2 * sizes.both, sizes.x + sizes.y)


def jaccard(approximate: pa.Table, exact: pa.Table) -> float:
    """Return the Jaccard coefficient |X ∩ Y| / (|X| + |Y| - |X ∩ Y|), from 0 to 1; 1 for two empty tables.

    Parameters
    ----------
    approximate, exact : pyarrow.Table
        The results X and Y as multisets of rows, with the same columns in the same order. Nulls equal each other.

    Examples
    --------
    >>> jaccard(pa.table({"key": [1, 7]}), pa.table({"key": [1, 2, 7, 7]}))
    0.5

    References
    ----------
    WINDOW 2.2, Jaccard coefficient.
    """
    sizes = _Sizes.of(approximate, exact)
    return _share(sizes.both, sizes.x + sizes.y - sizes.both)


def cosine(approximate: pa.Table, exact: pa.Table) -> float:
    """Return the cosine coefficient |X ∩ Y| / sqrt(|X| |Y|), from 0 to 1; 1 if both tables are empty, 0 if only one is.

    Parameters
    ----------
    approximate, exact : pyarrow.Table
        The results X and Y as multisets of rows, with the same columns in the same order. Nulls equal each other.

    Examples
    --------
    >>> cosine(pa.table({"key": [1]}), pa.table({"key": [1, 2, 3, 4]}))
    0.5

    References
    ----------
    WINDOW 2.2, Cosine coefficient.
    """
    sizes = _Sizes.of(approximate, exact)
    return sizes.both / math.sqrt(sizes.x * sizes.y) if sizes.x and sizes.y else float(sizes.x == sizes.y)


def overlap(approximate: pa.Table, exact: pa.Table) -> float:
    """Return the overlap coefficient |X ∩ Y| / min(|X|, |Y|), from 0 to 1; 1 for subsets, including empty ones.

    Parameters
    ----------
    approximate, exact : pyarrow.Table
        The results X and Y as multisets of rows, with the same columns in the same order. Nulls equal each other.

    Examples
    --------
    >>> overlap(pa.table({"key": [1, 2]}), pa.table({"key": [1, 2, 3, 4]}))
    1.0

    References
    ----------
    WINDOW 2.2, Overlap coefficient.
    """
    sizes = _Sizes.of(approximate, exact)
    return _share(sizes.both, min(sizes.x, sizes.y))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
