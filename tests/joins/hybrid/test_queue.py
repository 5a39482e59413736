"""The queue with random deletion against a list that does the same one tuple at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import MemoryBudget
from semistream.joins.hybrid.page_chains import PageNeeds, PageSpan
from semistream.joins.hybrid.queue import StreamQueue
from semistream.joins.parts.intake import Admitted
from semistream.keys import CodeRanges
from semistream.relation.format.row_sizes import row_sizes
from tests.joins.bare_page_tables import page_table

PAGES = [(0, 3), (3, 3), (3, 6), (8, 9), (9, 12)]  # 3 is on three pages, 9 on two, 7 on none
RANGES = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda bounds: (min(bounds), max(bounds)))
SINGLE = st.integers(0, 12).map(lambda code: (code, code))


def tuples(ranges: list[tuple[int, int] | None], texts: list[str], *, single_codes: bool = True) -> Admitted:
    """Tuples of a number and a text, as the intake gives them."""
    batch = pa.record_batch(
        {"key": pa.array([r and r[0] for r in ranges], pa.int64()), "text": pa.array(texts, pa.string())}
    )
    low, high = (np.array([r[i] if r else 0 for r in ranges], np.int64) for i in range(2))
    possible = np.array([r is not None for r in ranges])
    return Admitted(batch, row_sizes(batch), CodeRanges(low, None if single_codes else high, possible))


def queue_of(slots: int, budget_bytes: int, packet_bytes: int, *, single_codes: bool = True) -> StreamQueue:
    needs = PageNeeds.of(page_table(PAGES), single_codes=single_codes)
    return StreamQueue(slots, needs, MemoryBudget(budget_bytes), packet_bytes)


def texts_of(queue: StreamQueue, positions: np.ndarray) -> list[str]:
    return queue.take(positions, [1])[0].to_pylist()


def meet(queue: StreamQueue, begin: int, end: int) -> tuple[list[tuple[str, int]], list[str]]:
    """Let tuples meet some pages; gives the texts of those that did, with each page, and of those that left."""
    met, left = [], []
    pages = PageSpan(begin, end)
    for stretches in queue.chains.meet(pages):
        of_each = zip(texts_of(queue, stretches.tuples), stretches.first, stretches.end, strict=True)
        met += [(text, page) for text, first, stop in of_each for page in range(first, stop)]
        through = queue.chains.through(stretches)
        left += texts_of(queue, through) if through.size else []
        queue.remove(through)
    queue.chains.waiting[begin:end] = 0
    queue.met(pages)
    return met, left


def actions(ranges: st.SearchStrategy[tuple[int, int]]) -> st.SearchStrategy[list[tuple[str, Any]]]:
    return st.lists(
        st.one_of(
            st.tuples(st.just("admit"), st.lists(st.one_of(ranges, st.none()), min_size=1, max_size=9)),
            st.tuples(st.just("meet"), st.tuples(st.integers(0, 5), st.integers(0, 5))),
            st.tuples(st.just("hopeless"), st.none()),
            st.tuples(st.just("compact"), st.none()),
        ),
        max_size=25,
    )


class _Model:
    """The queue as a list of texts and the pages that each has yet to meet."""

    def __init__(self) -> None:
        self.waits: list[tuple[str, set[int]]] = []
        self.came = 0

    def admit(self, ranges: list[tuple[int, int] | None]) -> list[str]:
        new = []
        for asked in ranges:
            self.came += 1
            low, high = asked or (1, 0)
            pages = {p for p, (first, last) in enumerate(PAGES) if asked and first <= high and low <= last}
            new.append(("x" * self.came + str(self.came), pages))
        self.waits += new
        return [text for text, _ in new]

    def meet(self, begin: int, end: int) -> tuple[list[tuple[str, int]], list[str]]:
        here = set(range(begin, end))
        met = [(text, page) for text, pages in self.waits for page in pages & here]
        left = [text for text, pages in self.waits if pages and pages <= here]
        self.waits = [(text, pages - here) for text, pages in self.waits if not pages or not pages <= here]
        return met, left

    def next_pages(self, meeting: PageSpan) -> PageSpan | None:
        lefts = (pages - set(range(*meeting)) for _, pages in self.waits)
        left = next((pages for pages in lefts if pages), None)
        if left is None:
            return None
        end = min(left) + 1
        while end in left:
            end += 1
        return PageSpan(min(left), end)


def check_against_the_model(queue: StreamQueue, script: list[tuple[str, Any]], *, single_codes: bool) -> None:
    model = _Model()
    held = 0
    for action, value in script:
        if action == "admit":
            admitted = tuples(value, model.admit(value), single_codes=single_codes)
            held += int(admitted.sizes.sum())
            assert queue.admit(admitted) == sum(bool(pages) for _, pages in model.waits[-len(value) :])
        elif action == "meet":
            begin, end = sorted(value)
            pages = PageSpan(begin, end)
            assert queue.next_pages(99, pages) == model.next_pages(pages)
            if begin < end:
                met, left = meet(queue, begin, end)
                expected_met, expected_left = model.meet(begin, end)
                assert sorted(met) == sorted(expected_met)
                assert sorted(left) == sorted(expected_left)
        elif action == "hopeless":
            gone = []
            for positions in queue.chains.hopeless():
                gone += texts_of(queue, positions)
                queue.remove(positions)
            assert sorted(gone) == sorted(text for text, pages in model.waits if not pages)
            model.waits = [(text, pages) for text, pages in model.waits if pages]
        else:
            held -= sum(int(sizes.sum()) for sizes in queue.compact())
            assert queue.vacant_share == 0
            assert queue.free == queue.slots - len(model.waits)
            assert held == sum(int(packet.sizes.sum()) for packet in queue.packets)
            assert held >= sum(packet.batch.nbytes for packet in queue.packets)
            # Nine rows may have come as one packet of more bytes; what was put together has no more.
            assert all(packet.sizes.sum() <= queue.packet_bytes for packet in queue.packets if packet.rows > 9)
        assert queue.live == len(model.waits)
        counts = [sum(page in pages for _, pages in model.waits) for page in range(len(PAGES))]
        assert queue.chains.waiting.tolist() == counts
        assert queue.pages_wanted == sum(count > 0 for count in counts)
        assert queue.next_pages(99) == model.next_pages(PageSpan(0, 0))


@settings(deadline=None, max_examples=150)
@given(actions(SINGLE), st.integers(20, 400))
def test_random_deletion_by_code_is_that_of_a_list(script, packet_bytes: int) -> None:
    check_against_the_model(queue_of(1000, 100_000, packet_bytes), script, single_codes=True)


@settings(deadline=None, max_examples=150)
@given(actions(RANGES), st.integers(20, 400))
def test_random_deletion_by_range_is_that_of_a_list(script, packet_bytes: int) -> None:
    queue = queue_of(1000, 100_000, packet_bytes, single_codes=False)
    check_against_the_model(queue, script, single_codes=False)


@pytest.mark.parametrize(("pages", "single_codes"), [(PAGES, True), (PAGES, False), ([(0, 5), (6, 9)], True)])
def test_the_queue_takes_no_more_than_its_stated_bytes(pages: list[tuple[int, int]], single_codes: bool) -> None:
    needs = PageNeeds.of(page_table(pages), single_codes=single_codes)
    queue = StreamQueue(3000, needs, MemoryBudget(10**6), 10**5)
    arrays = {
        id(a): a.nbytes for holder in (queue, queue.chains) for a in vars(holder).values() if hasattr(a, "nbytes")
    }
    table = needs.table.first_code.nbytes + needs.table.last_code.nbytes
    assert sum(arrays.values()) - table <= needs.page_bytes + StreamQueue.index_bytes(needs, 3000)
    assert sum(arrays.values()) - table >= needs.page_bytes + 3000 * needs.tuple_bytes


def test_packets_stay_few_however_small_they_come() -> None:
    queue = queue_of(4000, 10**6, 10**5)
    for i in range(3000):
        queue.admit(tuples([(i % 13, i % 13)], ["text"]))
        if i % 7 == 0:
            meet(queue, 0, 2)
        if queue.vacant_share >= 0.25:
            list(queue.compact())
    assert len(queue.packets) < 30


def test_compaction_frees_the_memory_of_departed_tuples() -> None:
    queue = queue_of(1000, 10**7, 200_000)
    before = pa.total_allocated_bytes()
    for _ in range(10):
        queue.admit(tuples([(5, 5)] * 40 + [(11, 11)], ["x" * 10_000] * 41))
    full = pa.total_allocated_bytes() - before
    meet(queue, 2, 3)
    given_back = sum(int(sizes.sum()) for sizes in queue.compact())
    assert given_back > 10 * 40 * 10_000
    assert pa.total_allocated_bytes() - before < full - 0.9 * given_back
    assert queue.live == 10
