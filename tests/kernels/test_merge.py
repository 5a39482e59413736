"""Matching sorted codes with pages: all pairs, whatever the output's size."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.kernels.merge import match_pages

EXTREMES = [np.iinfo(np.int64).min, np.iinfo(np.int64).max]
CODES = st.one_of(st.integers(-4, 4), st.sampled_from(EXTREMES))
PAGES = st.lists(st.lists(CODES, min_size=1, max_size=8), max_size=6)


def _match(pages: list[list[int]], asked: list[int], room: int) -> list[tuple[int, int, int]]:
    run = np.array([-99] + [code for page in pages for code in [*sorted(page), -99]], np.int64)
    rows = np.array([len(page) for page in pages], np.int32)
    starts = 1 + np.cumsum(np.array([0, *(len(page) + 1 for page in pages)]), dtype=np.int64)[:-1]
    position, page, row = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int32)
    cursor = np.array([0, -1, -1], np.int64)
    pairs: list[tuple[int, int, int]] = []
    while cursor[0] < rows.size:
        before = cursor.copy()
        n = match_pages(run, starts, rows, np.array(sorted(asked), np.int64), cursor, position, page, row)
        assert n <= room
        assert n > 0 or not np.array_equal(before, cursor)  # it always gets on
        pairs += zip(position[:n].tolist(), page[:n].tolist(), row[:n].tolist(), strict=True)
        assert len(pairs) <= int(rows.sum()) * len(asked)  # and never round in circles
    return pairs


@settings(deadline=None)
@given(PAGES, st.lists(CODES, max_size=8), st.integers(1, 5))
def test_every_pair_is_found_once_whatever_the_room(pages: list[list[int]], asked: list[int], room: int) -> None:
    expected = {
        (position, number, row)
        for number, page in enumerate(pages)
        for row, code in enumerate(sorted(page))
        for position, wanted in enumerate(sorted(asked))
        if wanted == code
    }
    found = _match(pages, asked, room)
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert [page for _, page, _ in found] == sorted(page for _, page, _ in found)  # grouped, for nested columns


def test_no_pages_and_no_codes_match_nothing() -> None:
    assert _match([], [1], 4) == []
    assert _match([[1, 2]], [], 4) == []
