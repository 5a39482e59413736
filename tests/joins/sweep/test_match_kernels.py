"""Pages and levels are matched as a loop over all pairs would do it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.sweep.kernels.match import flag_pages, match_levels

CODES = {
    "dense": st.integers(0, 40),
    "sparse": st.integers(-(2**40), 2**40).map(lambda i: i >> 36 << 36),
    "any": st.integers(-(2**63), 2**63 - 1),
    "extreme": st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 1]),
}


@st.composite
def pages_of_codes(draw: st.DrawFn) -> tuple[list[np.ndarray], st.SearchStrategy[int]]:
    """Ascending pages one after the other, and the values that codes are made of."""
    if draw(st.booleans()):
        first, rows = draw(st.integers(-20, 20)), draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
        ends = np.cumsum(rows)
        codes = np.arange(first, first + ends[-1])
        for twice in draw(st.sets(st.integers(1, max(int(ends[-1]) - 1, 1)), max_size=2)) - {int(ends[-1])}:
            codes[twice] = codes[twice - 1]
        return np.split(codes, ends[:-1]), st.integers(first - 3, first + int(ends[-1]) + 3)
    values = CODES[draw(st.sampled_from(sorted(CODES)))]
    codes = np.array(sorted(draw(st.lists(values, min_size=1, max_size=40))), np.int64)
    cuts = sorted(draw(st.sets(st.integers(1, max(codes.size - 1, 1)), max_size=4)) - {codes.size})
    return np.split(codes, cuts), values


@settings(deadline=None, max_examples=300)
@given(data=st.data(), shift=st.sampled_from([0, 0, 2, 37]), room=st.sampled_from([1, 2, 7, 10_000]))
def test_every_pair_is_found_once(data: st.DataObject, shift: int, room: int) -> None:
    pages, values = data.draw(pages_of_codes())
    present = st.sampled_from(np.concatenate(pages).tolist())
    levels = data.draw(st.lists(st.lists(values | present, max_size=12), max_size=4))
    spans = [data.draw(st.tuples(st.integers(90, 110), st.integers(90, 110))) for _ in levels]
    first_passed = data.draw(st.integers(95, 105))
    passed = np.arange(first_passed, first_passed + len(pages))
    stored = [np.sort(np.array(level, np.int64) >> shift) for level in levels]
    base = int(min((level.min() for level in stored if level.size), default=0))
    narrow = [level.size > 0 and int(level.max()) - base < 2**32 for level in stored]
    block, at = _block(stored, narrow, base)
    bases = np.array([base if is_narrow else 0 for is_narrow in narrow], np.int64)
    numbers = np.arange(len(levels), dtype=np.int64) << 32
    flags_at = block.size + np.concatenate([[0], np.cumsum([level.size for level in stored])])[:-1].astype(np.int64)
    block = np.concatenate([block, np.zeros(sum(level.size for level in stored) + 8, np.uint8)])
    block = block[: block.size // 8 * 8]
    starts = np.concatenate([[0], np.cumsum([page.size for page in pages])])[:-1]
    pages_met = np.array([sum(passed < leaves) if enters <= first_passed else 0 for enters, leaves in spans], np.int64)
    out = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int32)
    cursor, cursors = np.array([0, 0, -1, -1]), np.zeros(len(levels), np.int64)
    found: list[tuple[int, int, int]] = []
    rows = np.array([page.size for page in pages], np.int32)
    while cursor[0] < len(pages):
        count = match_levels(
            np.concatenate(pages), starts, rows, pages_met, block, at, np.array(narrow, np.bool_), bases, shift,
            np.array([level.size for level in stored], np.int64), numbers, flags_at, cursors,
            np.empty(64, np.int32), cursor, *out,
        )  # fmt: skip
        found += zip(*(array[:count].tolist() for array in out), strict=True)
    wanted = [
        (int(numbers[i]) + j, p, k)
        for i, level in enumerate(stored)
        for p, page in enumerate(pages)
        if spans[i][0] <= first_passed and passed[p] < spans[i][1]
        for j, code in enumerate(level.tolist())
        for k in np.flatnonzero(page >> shift == code).tolist()
    ]
    assert sorted(found) == sorted(wanted)
    marked = [(i << 32) + j for i, a in enumerate(flags_at.tolist()) for j in range(stored[i].size) if block[a + j]]
    assert marked == sorted({number for number, _, _ in wanted})


def _block(stored: list[np.ndarray], narrow: list[bool], base: int) -> tuple[np.ndarray, np.ndarray]:
    parts, at, end = [], [], 0
    for level, is_narrow in zip(stored, narrow, strict=True):
        values: Any = (level - base).astype(np.uint32) if is_narrow else level
        part = values.tobytes()
        part += bytes(-len(part) % 8)
        at.append(end)
        parts.append(part)
        end += len(part)
    return np.frombuffer(b"".join(parts), np.uint8).copy(), np.array(at, np.int64)


@settings(deadline=None)
@given(data=st.data(), shift=st.sampled_from([0, 2, 37]))
def test_pages_that_may_hold_a_code_are_flagged(data: st.DataObject, shift: int) -> None:
    pages, values = data.draw(pages_of_codes())
    codes = np.sort(np.array(data.draw(st.lists(values, max_size=10)), np.int64) >> shift)
    places = np.array(data.draw(st.permutations(range(len(pages)))), np.int32)
    flags = np.zeros(len(pages), np.bool_)
    first, last = (np.array([page[i] for page in pages]) for i in (0, -1))
    flag_pages(codes, 0, shift, first, last, places, flags)
    wanted = [any(a >> shift <= code <= b >> shift for code in codes) for a, b in zip(first, last, strict=True)]
    assert flags[places].tolist() == wanted
