"""Truncation of joins of many relations: the bound of WINDOW 3.4, against brute force."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.windows import independent_truncation


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_it_loses_at_most_m_times_the_optimum(data: st.DataObject):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4), label="sizes")
    everything = list(product(*(range(size) for size in sizes)))
    lineage = sorted(data.draw(st.sets(st.sampled_from(everything), max_size=20), label="lineage"))
    drop = [data.draw(st.integers(0, size)) for size in sizes]
    join = independent_truncation(np.array(lineage, np.int64).reshape(-1, len(sizes)), sizes, drop=drop)

    choices = product(*(combinations(range(size), size - number) for size, number in zip(sizes, drop, strict=True)))
    most = max(
        sum(all(row in kept for row, kept in zip(line, rows, strict=True)) for line in lineage) for rows in choices
    )
    kept = [set(rows.tolist()) for rows in join.retained]
    assert [len(rows) for rows in kept] == [size - number for size, number in zip(sizes, drop, strict=True)]
    assert join.results == sum(all(row in rows for row, rows in zip(line, kept, strict=True)) for line in lineage)
    assert join.exact == len(lineage)
    least = len(lineage) - most
    assert join.least_lost <= least <= join.lost <= len(sizes) * least


@pytest.mark.parametrize(
    ("lineage", "drop", "says"),
    [([[0, 2]], [0, 0], "relation 1, which has 2"), ([[0, 0]], [0, 3], "from 0 to 2"), ([[0, 0]], [1], "one for each")],
)
def test_what_cannot_work_is_refused(lineage: list[list[int]], drop: list[int], says: str):
    with pytest.raises(InvalidArgument, match=says):
        independent_truncation(lineage, [2, 2], drop=drop)
