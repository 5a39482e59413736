"""Chains of tuples by bucket: every tuple is in the one that its pages say, and comes out once."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.kernels.buckets import GONE, HOPELESS, first_outside, link_tuples, list_tuples, unlink_tuples

EXTREMES = [np.iinfo(np.int64).min, np.iinfo(np.int64).max]
CODES = st.one_of(st.integers(-6, 6), st.sampled_from(EXTREMES))


@st.composite
def page_ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """First and last codes of pages in ascending order, some of which share a code with the next."""
    bounds = sorted(draw(st.lists(CODES, max_size=12)))
    return list(zip(bounds[::2], bounds[1::2], strict=False))


def bucket_by_hand(pages: list[tuple[int, int]], code: int) -> int:
    holding = [number for number, (first, last) in enumerate(pages) if first <= code <= last]
    if not holding:
        return 2 * len(pages)
    return 2 * holding[0] + (len(holding) > 1)


def linked(pages: list[tuple[int, int]], codes: list[int], nulls: list[int]) -> tuple[np.ndarray, ...]:
    first, last = (np.array([page[i] for page in pages], np.int64) for i in range(2))
    flags = np.array([HOPELESS if i in nulls else 0 for i in range(len(codes))], np.uint8)
    head, following = np.full(2 * len(pages) + 1, -1, np.int32), np.empty(len(codes), np.int32)
    waiting = np.zeros(2 * len(pages) + 1, np.int32)
    arrays = (first, last, np.array(codes, np.int64), flags)
    half = len(codes) // 2
    with_page = sum(link_tuples(*arrays, a, b, head, following, waiting) for a, b in ((0, half), (half, len(codes))))
    assert with_page == waiting[:-1].sum()
    return head, following, waiting


@settings(deadline=None)
@given(page_ranges(), st.lists(CODES, max_size=15), st.lists(st.integers(0, 14)), st.integers(1, 5))
def test_tuples_come_out_of_the_bucket_of_their_pages(
    pages: list[tuple[int, int]], codes: list[int], nulls: list[int], room: int
) -> None:
    head, following, waiting = linked(pages, codes, nulls)
    expected: dict[int, set[int]] = {}
    for tuple_, code in enumerate(codes):
        bucket = 2 * len(pages) if tuple_ in nulls else bucket_by_hand(pages, code)
        expected.setdefault(bucket, set()).add(tuple_)
    assert {b: n for b, n in enumerate(waiting.tolist()) if n} == {b: len(t) for b, t in expected.items()}

    out = np.empty(room, np.int64)
    for bucket in range(head.size):
        listed, start = [], int(head[bucket])
        while start >= 0:
            found, start = list_tuples(following, start, out)
            listed += out[:found].tolist()
        assert len(listed) == len(set(listed))
        assert set(listed) == expected.get(bucket, set())

    middle = head.size // 2
    for begin, end in ((middle, head.size), (0, middle)):
        taken: list[int] = []
        while found := unlink_tuples(head, following, begin, end, out):
            taken += out[:found].tolist()
        assert sorted(taken) == sorted(t for b in range(begin, end) for t in expected.get(b, set()))
    assert (head == -1).all()


@settings(deadline=None)
@given(st.lists(st.tuples(CODES, st.booleans()), max_size=10), st.integers(0, 10), CODES, CODES)
def test_the_first_tuple_outside_a_range_of_codes(
    tuples: list[tuple[int, bool]], begin: int, low: int, high: int
) -> None:
    codes = np.array([code for code, _ in tuples], np.int64)
    flags = np.array([GONE if gone else 0 for _, gone in tuples], np.uint8)
    fitting = [i for i, (code, gone) in enumerate(tuples) if i >= begin and not gone and not low <= code <= high]
    begin = min(begin, len(tuples))
    assert first_outside(codes, flags, begin, len(tuples), low, high) == min(fitting, default=len(tuples))
