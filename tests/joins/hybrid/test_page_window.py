"""The choice of pages is the best there is, by trying all."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.hybrid.kernels import choose_pages


@st.composite
def layouts(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """File, offset and bytes of pages that mostly follow one another, and the tuples that wait for each."""
    pages = draw(st.integers(1, 9))
    nbytes = draw(st.lists(st.integers(1, 6), min_size=pages, max_size=pages))
    breaks = draw(st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=pages, max_size=pages))
    waiting = draw(st.lists(st.integers(0, 9), min_size=pages, max_size=pages))
    file, offset = [0], [0]
    for page in range(1, pages):
        file.append(file[-1] + (breaks[page] == 1))
        offset.append(offset[-1] + nbytes[page - 1] + (breaks[page] == 2))
    return np.array(file, np.int32), np.array(offset), np.array(nbytes), np.array(waiting, np.int32)


def is_run(file: np.ndarray, offset: np.ndarray, nbytes: np.ndarray, begin: int, end: int) -> bool:
    pairs = range(begin, end - 1)
    return all(file[p] == file[p + 1] and offset[p] + nbytes[p] == offset[p + 1] for p in pairs)


@settings(deadline=None, max_examples=400)
@given(layouts(), st.data(), st.integers(0, 40), st.integers(0, 30), st.integers(1, 9))
def test_no_other_pages_serve_more_tuples_for_their_time(layout, data, seek, spare_bytes, run_pages) -> None:
    file, offset, nbytes, waiting = layout
    first = data.draw(st.integers(0, file.size - 1))
    end = data.draw(st.integers(first + 1, file.size))
    while end - first > 1 and not (is_run(file, offset, nbytes, first, end) and end - first <= run_pages):
        end -= 1
    waiting[first] += 1  # the tuple that they are read for
    run_bytes = int(nbytes[first:end].sum()) + spare_bytes

    def rate(begin: int, stop: int) -> Fraction:
        return Fraction(int(waiting[begin:stop].sum()), seek + int(nbytes[begin:stop].sum()))

    possible = [
        (begin, stop)
        for begin in range(first + 1)
        for stop in range(end, file.size + 1)
        if is_run(file, offset, nbytes, begin, stop)
        and nbytes[begin:stop].sum() <= run_bytes
        and stop - begin <= run_pages
    ]
    chosen = choose_pages(file, offset, nbytes, waiting, first, end, run_bytes, run_pages, seek)
    assert chosen in possible
    best = max(rate(*pages) for pages in possible)
    assert float(rate(*chosen)) >= float(best) * (1 - 1e-12)
