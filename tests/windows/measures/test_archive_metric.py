"""The Archive-metric: the tuples that a repair reads are those it needs, and no others."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.windows import archive_metric

SCHEMA = pa.schema([("l", pa.int64()), ("r", pa.int64())])
pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=15)


def table(rows: list[tuple[int, int]]) -> pa.Table:
    return pa.table({"l": [left for left, _ in rows], "r": [right for _, right in rows]}, schema=SCHEMA)


@settings(deadline=None)
@given(pairs, st.data())
def test_it_counts_each_tuple_of_a_missing_result_once(exact: list[tuple[int, int]], data: st.DataObject):
    flags = data.draw(st.lists(st.booleans(), min_size=len(exact), max_size=len(exact)))
    found = [row for row, chosen in zip(exact, flags, strict=True) if chosen]
    missing = Counter(exact) - Counter(found)
    read = len({left for left, _ in missing}) + len({right for _, right in missing})
    assert archive_metric(table(found), table(exact), left=["l"], right=["r"]) == read


def test_an_exact_result_needs_no_archive():
    assert archive_metric(table([(1, 2)]), table([(1, 2)]), left=["l"], right=["r"]) == 0


def test_what_cannot_work_is_refused():
    with pytest.raises(ColumnNotFound, match="'ll'"):
        archive_metric(table([]), table([]), left=["ll"], right=["r"])
    with pytest.raises(InvalidArgument, match="1 rows are not in the exact result"):
        archive_metric(table([(1, 1)]), table([(1, 2)]), left=["l"], right=["r"])
    with pytest.raises(InvalidArgument, match="names no column"):
        archive_metric(table([]), table([]), left=[], right=["r"])
