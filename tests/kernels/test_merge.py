"""Matching sorted codes with pages: all pairs, whatever the output's size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.kernels.merge import match_pages, match_ranges, match_stretches, merge_ranges

EXTREMES = [np.iinfo(np.int64).min, np.iinfo(np.int64).max]
CODES = st.one_of(st.integers(-4, 4), st.sampled_from(EXTREMES))
PAGES = st.lists(st.lists(CODES, min_size=1, max_size=8), max_size=6)


RANGES = st.lists(st.tuples(CODES, CODES).map(sorted), max_size=8).map(sorted)


def _match(pages: list[list[int]], asked: list[int], room: int) -> list[tuple[int, int, int]]:
    codes = np.array(sorted(asked), np.int64)
    return _drive(pages, room, len(asked), lambda run, starts, rows, *out: match_pages(run, starts, rows, codes, *out))


def _match_ranges(pages: list[list[int]], asked: list[list[int]], room: int) -> list[tuple[int, int, int]]:
    low, high = (np.array([bounds[i] for bounds in asked], np.int64) for i in range(2))
    reach = np.maximum.accumulate(high)
    return _drive(pages, room, len(asked), lambda *run: match_ranges(*run[:3], low, high, reach, *run[3:]))


def _drive(
    pages: list[list[int]], room: int, asked: int, match: Callable[..., int], end: int | None = None
) -> list[tuple[int, int, int]]:
    """All that a kernel finds until its cursor is at ``end``, by default behind the last page."""
    run = np.array([-99] + [code for page in pages for code in [*sorted(page), -99]], np.int64)
    rows = np.array([len(page) for page in pages], np.int32)
    starts = 1 + np.cumsum(np.array([0, *(len(page) + 1 for page in pages)]), dtype=np.int64)[:-1]
    position, page, row = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int32)
    cursor = np.array([0, -1, -1], np.int64)
    pairs: list[tuple[int, int, int]] = []
    while cursor[0] < (rows.size if end is None else end):
        before = cursor.copy()
        n = match(run, starts, rows, cursor, position, page, row)
        assert n <= room
        assert n > 0 or not np.array_equal(before, cursor)  # it always gets on
        pairs += zip(position[:n].tolist(), page[:n].tolist(), row[:n].tolist(), strict=True)
        assert len(pairs) <= int(rows.sum()) * asked  # and never round in circles
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


@settings(deadline=None)
@given(PAGES, RANGES, st.integers(1, 5))
def test_every_code_in_a_range_is_found_once_whatever_the_room(
    pages: list[list[int]], asked: list[list[int]], room: int
) -> None:
    expected = [
        (position, number, row)
        for number, page in enumerate(pages)
        for position, (low, high) in enumerate(asked)
        for row, code in enumerate(sorted(page))
        if low <= code <= high
    ]
    assert _match_ranges(pages, asked, room) == expected


@settings(deadline=None)
@given(PAGES.filter(bool), RANGES, st.data(), st.integers(1, 5))
def test_every_code_in_a_range_is_found_on_the_pages_of_its_stretch_alone(
    pages: list[list[int]], ranges: list[list[int]], data: st.DataObject, room: int
) -> None:
    ordered = sorted(code for page in pages for code in page)
    sizes = [len(page) for page in pages]
    pages = [[ordered.pop(0) for _ in range(size)] for size in sizes]
    low, high = (np.array([bounds[i] for bounds in ranges], np.int64) for i in range(2))
    stretch = st.tuples(st.integers(0, len(pages)), st.integers(0, len(pages))).map(sorted)
    picks = st.lists(st.tuples(st.integers(0, len(ranges) - 1), stretch), max_size=8) if ranges else st.just([])
    asked = data.draw(picks)
    tuples = np.array([tuple_ for tuple_, _ in asked], np.int64)
    first, end = (np.array([70 + pages_[i] for _, pages_ in asked], np.int32) for i in range(2))

    def match(run: np.ndarray, starts: np.ndarray, rows: np.ndarray, *out: np.ndarray) -> int:
        return match_stretches(run, starts, rows, 70, low, high, tuples, first, end, *out)

    assert _drive(pages, room, len(asked), match, len(asked)) == [
        (tuple_, number, row)
        for tuple_, (begin, stop) in asked
        for number in range(begin, stop)
        for row, code in enumerate(pages[number])
        if low[tuple_] <= code <= high[tuple_]
    ]


@settings(deadline=None)
@given(RANGES, RANGES)
def test_merged_ranges_are_in_order_and_keep_their_values(left: list[list[int]], right: list[list[int]]) -> None:
    arrays = [np.array([bounds[i] for bounds in side], np.int64) for side in (left, right) for i in range(2)]
    values = np.arange(len(left)), np.arange(len(right)) + 100
    low, high, merged = merge_ranges(arrays[0], arrays[1], values[0], arrays[2], arrays[3], values[1])
    rows = [(*bounds, i) for i, bounds in enumerate(left)] + [(*bounds, i + 100) for i, bounds in enumerate(right)]
    assert list(zip(low.tolist(), high.tolist(), merged.tolist(), strict=True)) == sorted(rows)
