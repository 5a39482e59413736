"""A partition has the pages that it is for, or as many of them as one run takes, and is one run."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.hybrid.page_chains import PageSpan
from semistream.joins.hybrid.partition import Partitioner
from tests.joins.bare_page_tables import page_table


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 12), st.sets(st.integers(1, 11), max_size=3), st.data(), st.integers(1, 4), st.integers(0, 300))
def test_a_partition_is_one_run_around_the_first_pages_needed(count, breaks, data, run_pages: int, seek: int) -> None:
    table = page_table([(page, page) for page in range(count)], 100, tuple(breaks))
    partitioner = Partitioner(table, run_bytes=300, run_pages=run_pages, seek_bytes=seek)
    begin = data.draw(st.integers(0, count - 1))
    needed = PageSpan(begin, data.draw(st.integers(begin + 1, count)))
    waiting = np.array(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), np.int32)
    waiting[needed.begin : needed.end] += 1

    partition = partitioner.around(needed, waiting)

    pages = list(range(*partition))
    assert len(pages) <= min(run_pages, 3)
    assert len(set(table.file[pages].tolist())) == 1
    first_run = [p for p in range(*needed) if table.file[p] == table.file[needed.begin]][: min(run_pages, 3)]
    assert set(first_run) <= set(pages)
