"""Cutting sorted rows into pages."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.kernels.page_cuts import cut_pages


def _greedy(sizes: list[int], page_bytes: int) -> list[int]:
    cuts, filled = [], 0
    for row, size in enumerate(sizes):
        if row == 0 or filled + size > page_bytes:
            cuts.append(row)
            filled = 0
        filled += size
    return cuts


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=60), st.integers(-10, 120))
def test_pages_are_filled_greedily_and_hold_at_least_a_row(sizes: list[int], page_bytes: int) -> None:
    cuts = cut_pages(np.cumsum(np.array(sizes, np.int64), dtype=np.int64), page_bytes).tolist()
    assert cuts == _greedy(sizes, page_bytes)
    for begin, end in pairwise([*cuts, len(sizes)]):
        assert end - begin == 1 or sum(sizes[begin:end]) <= page_bytes or not any(sizes[begin + 1 : end])


def test_no_rows_make_no_page() -> None:
    assert cut_pages(np.empty(0, np.int64), 10).size == 0
