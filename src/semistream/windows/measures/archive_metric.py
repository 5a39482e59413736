"""Archive metric: the number of archived tuples to read to make an approximate join result exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.windows.measures.sets import same_columns
from semistream.windows.row_codes import row_codes


def archive_metric(approximate: pa.Table, exact: pa.Table, *, left: Sequence[str], right: Sequence[str]) -> int:
    """Count the archived tuples of both streams that take part in a missing result, each tuple once.

    A missing pair needs both of its tuples, and neither is in memory any more. Each must be read once, however many of
    its results are missing. Lower is better; 0 means an exact result.

    Parameters
    ----------
    approximate : pyarrow.Table
        The approximate result. Each of its rows must be in the exact result.
    exact : pyarrow.Table
        The exact result, with the same columns in the same order.
    left, right : sequence of str
        Columns of the results that identify the left and the right tuple of a row.

    Examples
    --------
    >>> exact = pa.table({"l": [1, 1, 2, 3], "r": [7, 8, 8, 9]})
    >>> archive_metric(exact.slice(3), exact, left=["l"], right=["r"])  # 1 and 2, 7 and 8
    4

    References
    ----------
    WINDOW 2.2 names the measure (ArM, for semantic load smoothing) and its purpose, and refers to Das, Gehrke &
    Riedewald (2003) for the definition. This function computes the work that the description implies, in tuples read.
    """
    same_columns(approximate, exact)
    for name in (*left, *right):
        if name not in exact.column_names:
            raise ColumnNotFound(name, exact.column_names, where="The exact result")
    if not left or not right:
        raise InvalidArgument(
            "left or right names no column; give the columns that identify a row's left and right tuples."
        )
    missing = exact.take(pa.array(_missing_rows(*row_codes(approximate, exact, nulls_match=True))))
    sides = (row_codes(missing.select(list(names)), nulls_match=True)[0] for names in (left, right))
    return sum(int(codes.max(initial=-1)) + 1 for codes in sides)


def _missing_rows(x: Int64s, y: Int64s) -> Int64s:
    """Return the rows of ``y`` missing from ``x``, counting copies; all of ``x`` must be in ``y``."""
    rows = max(x.max(initial=-1), y.max(initial=-1)) + 1
    there = np.bincount(x, minlength=rows)
    if (extra := there - np.bincount(y, minlength=rows)).max(initial=0) > 0:
        raise InvalidArgument(
            f"{extra[extra > 0].sum()} rows are not in the exact result; reading the archive can only add rows."
        )
    order = np.argsort(y, kind="stable")
    copy = np.arange(y.size) - np.searchsorted(y[order], y[order])  # number of earlier copies of each value
    return np.sort(order[copy >= there[y[order]]])
