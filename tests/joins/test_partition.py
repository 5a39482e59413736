"""A partition serves exactly the tuples all of whose pages are in it, and reads all pages of the tuple it is for."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.partition import Partitioner
from tests.joins.page_tables import page_table

EXTREMES = [-(2**63), 2**63 - 1]
CODES = st.one_of(st.integers(0, 8), st.sampled_from(EXTREMES))


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    bounds = sorted(draw(st.lists(CODES, min_size=2, max_size=20)))
    ranges = list(zip(bounds[::2], bounds[1::2], strict=False))
    return ranges, tuple(draw(st.sets(st.integers(1, 9), max_size=3)))


@settings(deadline=None, max_examples=400)
@given(tables(), st.data(), st.integers(1, 4), st.integers(0, 300))
def test_tuples_served_are_those_with_all_their_pages_in_it(table, data, run_pages: int, seek: int) -> None:
    ranges, breaks = table
    code = data.draw(st.sampled_from([code for bounds in ranges for code in bounds]))
    waiting = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=2 * len(ranges) + 1, max_size=2 * len(ranges) + 1))
    )
    waiting = waiting.astype(np.int32) + 1
    pages_of = {
        value: {page for page, (first, last) in enumerate(ranges) if first <= value <= last}
        for value in [*range(-1, 10), *EXTREMES, *(code for bounds in ranges for code in bounds)]
    }
    bucket_of = {v: 2 * min(pages) + (len(pages) > 1) for v, pages in pages_of.items() if pages}
    partitioner = Partitioner(page_table(ranges, 100, breaks), run_bytes=400, run_pages=run_pages, seek_bytes=seek)

    partition = partitioner.around(code, waiting)

    read = [page for reading in partition.readings for page in reading.pages.tolist()]
    assert read == list(range(read[0], read[-1] + 1))
    assert pages_of[code] <= set(read)
    assert len(partition.readings) == 1 or set(read) == pages_of[code]  # more runs only if one code needs them
    for reading in partition.readings:
        files = {sum(at <= page for at in breaks) for page in reading.pages.tolist()}
        assert len(files) == 1
        assert reading.pages.size <= run_pages
    for value, bucket in bucket_of.items():
        served = pages_of[value] <= set(read)
        assert served == (partition.codes[0] <= value <= partition.codes[1])
        assert served == (partition.buckets[0] <= bucket < partition.buckets[1])

    met: dict[int, set[int]] = {}
    done: set[int] = set()
    for reading in partition.readings:
        leaving = set(range(reading.begin, reading.done))
        staying = {reading.done} if reading.goes_on else set()
        for value, bucket in bucket_of.items():
            if bucket in leaving | staying:
                assert bucket not in done
                met.setdefault(value, set()).update(pages_of[value] & set(reading.pages.tolist()))
            if bucket in leaving:
                assert met[value] == pages_of[value]
        done |= leaving
