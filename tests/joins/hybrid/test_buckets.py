"""Chains of tuples by bucket: every tuple meets every page that it needs once, however the pages come."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.hybrid.kernels import (
    GONE,
    HOPELESS,
    admit_tuples,
    first_live,
    link_tuples,
    meet_pages,
    next_pages,
    renumber_met,
    unlink_hopeless,
)

EXTREMES = [np.iinfo(np.int64).min, np.iinfo(np.int64).max]
CODES = st.one_of(st.integers(-6, 6), st.sampled_from(EXTREMES))
SLOTS = 100


@st.composite
def page_ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """First and last codes of pages in ascending order, some of which share a code with the next."""
    bounds = sorted(draw(st.lists(CODES, max_size=24)))
    return list(zip(bounds[::2], bounds[1::2], strict=False))


code_ranges = st.tuples(CODES, CODES).map(lambda bounds: (min(bounds), max(bounds)))
tuples = st.lists(st.tuples(code_ranges, st.sampled_from([0, 0, 0, HOPELESS])), max_size=12)


@dataclass
class Chains:
    """The arrays that the kernels work on, and beside them which pages each tuple has yet to meet."""

    pages: list[tuple[int, int]]
    several: bool = True
    needs: list[set[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first, self.last = (np.array([page[i] for page in self.pages], np.int64) for i in range(2))
        count = len(self.pages)
        self.base = 1
        while self.several and self.base < count:
            self.base *= 2
        self.head, self.following = np.full(self.base + count, -1, np.int32), np.empty(SLOTS, np.int32)
        self.low, self.high = np.empty(SLOTS, np.int64), np.empty(SLOTS, np.int64)
        self.flags = np.zeros(SLOTS, np.uint8)
        self.missing = np.empty(SLOTS if self.several else 0, np.int32)
        self.met = np.zeros(count if self.several else 0, np.int32)
        self.waiting, self.rises = np.zeros(count, np.int32), np.zeros(count + 1, np.int32)

    @property
    def codes(self) -> tuple[np.ndarray, ...]:
        return self.first, self.last, self.low, self.high

    def admit(self, new: list[tuple[tuple[int, int], int]]) -> None:
        begin, end = len(self.needs), len(self.needs) + len(new)
        for tuple_, ((low, high), flags) in enumerate(new, begin):
            self.low[tuple_], self.high[tuple_], self.flags[tuple_] = low, high, flags
            touched = {p for p, (first, last) in enumerate(self.pages) if first <= high and low <= last}
            self.needs.append(set() if flags & HOPELESS else touched)
        chains = self.base, self.head, self.following, self.missing, self.waiting, self.rises
        needing = admit_tuples(*self.codes, self.flags, begin, end, *chains)
        assert needing == sum(bool(pages) for pages in self.needs[begin:])
        assert not self.rises.any()

    def meet(self, begin: int, end: int, room: int) -> None:
        cursor = np.array([0, self.base + begin, -1, 0])
        out = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int32)
        chains = self.base, self.head, self.following, self.missing, self.met
        met: list[tuple[int, int]] = []
        while cursor[0] >= 0:
            found = meet_pages(*self.codes, *chains, begin, end, cursor, *out)
            met += [(t, p) for t, a, b in zip(*(o[:found].tolist() for o in out), strict=True) for p in range(a, b)]
        needed = {(t, p) for t, pages in enumerate(self.needs) for p in pages if begin <= p < end}
        assert len(met) == len(needed)
        assert set(met) == needed
        self.waiting[begin:end] = 0
        self.met[begin:end] = len(self.needs)
        for tuple_, page in met:
            self.needs[tuple_].discard(page)
            if not self.needs[tuple_]:
                self.flags[tuple_] |= GONE

    def compact(self) -> None:
        renumber_met(self.flags, len(self.needs), self.met, self.following)
        kept = [t for t in range(len(self.needs)) if not self.flags[t] & GONE]
        for array in (self.low, self.high, self.flags, self.missing):
            if array.size:
                array[: len(kept)] = array[kept]
        self.needs = [self.needs[t] for t in kept]
        self.head.fill(-1)
        link_tuples(*self.codes, self.flags, len(kept), self.base, self.head, self.following)

    def let_hopeless_go(self, room: int) -> None:
        out, gone = np.empty(room, np.int64), []
        while found := unlink_hopeless(self.head, self.following, out):
            gone += out[:found].tolist()
        expected = [t for t, pages in enumerate(self.needs) if not pages and not self.flags[t] & GONE]
        assert sorted(gone) == expected
        self.flags[gone] |= GONE

    def check(self, begin: int, end: int, most: int) -> None:
        """Check the counts, and the next read while the pages from ``begin`` to ``end`` are joined."""
        assert self.waiting.tolist() == [sum(p in pages for pages in self.needs) for p in range(len(self.pages))]
        live = [t for t in range(len(self.needs)) if not self.flags[t] & GONE]
        assert first_live(self.flags, 0, len(self.needs)) == min(live, default=len(self.needs))
        if self.several:
            assert self.missing[live].tolist() == [len(self.needs[t]) for t in live]
        lefts = [pages - set(range(begin, end)) for pages in self.needs]
        left = next((pages for pages in lefts if pages), set())
        expected = (min(left), min(left) + 1) if left else (0, 0)
        while left and expected[1] in left and expected[1] - expected[0] < most:
            expected = expected[0], expected[1] + 1
        waits = self.flags, self.missing, self.met, 0, len(self.needs)
        assert next_pages(*self.codes, *waits, begin, end, most) == expected


actions = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), tuples),
        st.tuples(st.just("meet"), st.tuples(st.integers(0, 12), st.integers(0, 12))),
        st.tuples(st.just("compact"), st.none()),
    ),
    max_size=12,
)


def run(chains: Chains, script: list[tuple[str, object]], room: int, most: int) -> None:
    for action, value in script:
        if action == "admit" and len(chains.needs) + len(value) <= SLOTS:
            chains.admit(value)
        elif action == "meet":
            begin, end = (min(bound, len(chains.pages)) for bound in sorted(value))
            chains.check(begin, end, most)
            if begin < end:
                chains.meet(begin, end, room)
        elif action == "compact":
            chains.let_hopeless_go(room)
            chains.compact()
        chains.check(0, 0, most)


@settings(deadline=None, max_examples=300)
@given(page_ranges(), actions, st.integers(1, 6), st.integers(1, 5))
def test_every_tuple_meets_every_page_of_its_range_once(pages, script, room: int, most: int) -> None:
    run(Chains(pages), script, room, most)


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(1, 12), st.integers(1, 6))
def test_tuples_of_one_page_each_need_no_more_than_its_chain(data, count: int, room: int) -> None:
    pages = [(10 * page, 10 * page + 5) for page in range(count)]
    codes = st.integers(0, 10 * count).map(lambda code: (code, code))
    single = st.lists(st.tuples(codes, st.sampled_from([0, 0, HOPELESS])), max_size=12)
    meet = st.tuples(st.just("meet"), st.tuples(st.integers(0, count), st.integers(0, count)))
    some = st.one_of(st.tuples(st.just("admit"), single), meet, st.just(("compact", None)))
    run(Chains(pages, several=False), data.draw(st.lists(some, max_size=12)), room, 1)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(-5, 900), st.integers(0, 900)), max_size=30), st.integers(1, 40))
def test_ranges_over_many_pages_are_counted_for_each(ranges: list[tuple[int, int]], room: int) -> None:
    chains = Chains([(4 * page, 4 * page + 3) for page in range(200)])
    chains.admit([((low, low + width), 0) for low, width in ranges])
    chains.check(50, 90, 300)
    chains.meet(50, 90, room)
    chains.check(0, 0, 300)
    chains.meet(0, 200, room)
    assert not any(chains.needs)
