"""Archive-metric: how many archived tuples must still be read to make an approximate join result exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.windows.measures.sets import same_columns
from semistream.windows.row_codes import row_codes


def archive_metric(approximate: pa.Table, exact: pa.Table, *, left: Sequence[str], right: Sequence[str]) -> int:
    """The archived tuples that take part in a missing result, of both streams, each counted once.

    ``left`` and ``right`` are the columns of the results that name the left and the right tuple that a row comes from.
    A missing pair can be made only of both its tuples, and neither is in memory any more: each must be read, but only
    once, however many of its results are missing. The less is left to read, the better; 0 is an exact result.

    >>> exact = pa.table({"l": [1, 1, 2, 3], "r": [7, 8, 8, 9]})
    >>> archive_metric(exact.slice(3), exact, left=["l"], right=["r"])  # 1 and 2, 7 and 8
    4

    References
    ----------
    WINDOW 2.2 names the measure (ArM, of semantic load smoothing) and what it is for, and leaves its definition to Das,
    Gehrke & Riedewald (2003): this is the work that the description implies, in tuples read.
    """
    same_columns(approximate, exact)
    for name in (*left, *right):
        if name not in exact.column_names:
            raise ColumnNotFound(name, exact.column_names, where="The exact result")
    if not left or not right:
        raise InvalidArgument("left or right names no column; say which columns name the tuples that a row comes from.")
    missing = exact.take(pa.array(_missing_rows(*row_codes(approximate, exact, nulls_match=True))))
    sides = (row_codes(missing.select(list(names)), nulls_match=True)[0] for names in (left, right))
    return sum(int(codes.max(initial=-1)) + 1 for codes in sides)


def _missing_rows(x: Int64s, y: Int64s) -> Int64s:
    """The rows of ``y`` that ``x`` does not have, copy for copy; all of ``x`` must be in ``y``."""
    rows = max(x.max(initial=-1), y.max(initial=-1)) + 1
    there = np.bincount(x, minlength=rows)
    if (extra := there - np.bincount(y, minlength=rows)).max(initial=0) > 0:
        raise InvalidArgument(
            f"{extra[extra > 0].sum()} rows are not in the exact result; what is read from the archive only adds rows."
        )
    order = np.argsort(y, kind="stable")
    copy = np.arange(y.size) - np.searchsorted(y[order], y[order])  # the how-manieth of its value each is
    return np.sort(order[copy >= there[y[order]]])
