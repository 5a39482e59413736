"""Read plans against a quadratic program and all possible plans (SSIJ IV-D)."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidArgument
from semistream.relation import DiskCosts, PageSlots, ReadPlan, greedy_plan, optimal_plan
from semistream.relation.format.page_table import PageTable, SegmentTable
from semistream.relation.read.read_plan import plan_memory_bytes
from tests.relation.page_tables import Place, layouts, page_table

COSTS = st.builds(
    DiskCosts,
    seek_s=st.sampled_from([0.0, 1.0, 7.0, 40.0, 40.0, 0.123]),
    transfer_s_per_byte=st.sampled_from([0.0, 0.125, 1.0, 0.3]),
    transfer_s_per_page=st.sampled_from([0.0, 0.0, 1.0, 2.7]),
)


@st.composite
def problems(draw: st.DrawFn, most_pages: int = 60) -> tuple[PageSlots, np.ndarray, DiskCosts, dict[str, Any]]:
    slots = PageSlots.of(page_table(draw(layouts(most_pages=most_pages))))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    share = draw(st.sampled_from([0.1, 0.4, 0.8, 1.0]))
    wanted = rng.permutation(np.flatnonzero(rng.random(len(slots.table)) < share))
    limits = {
        "most_bytes": draw(st.one_of(st.integers(1, 400), st.integers(1, 50).map(lambda n: 8 * n))),
        "most_pages": draw(st.one_of(st.none(), st.none(), st.integers(1, 12))),
    }
    return slots, wanted, draw(COSTS), limits


def _span(slots: PageSlots, pages: np.ndarray) -> tuple[int, int]:
    """Bytes and pages from the first to the last of these, which must be in one file."""
    table = slots.table
    assert np.unique(table.file[pages]).size == 1
    nbytes = int((table.offset[pages] + table.nbytes[pages]).max() - table.offset[pages].min())
    return nbytes, int(np.ptp(slots.slot[pages])) + 1


def _allowed(slots: PageSlots, pages: np.ndarray, most_bytes: int, most_pages: int | None) -> bool:
    if pages.size == 1:
        return True
    if np.unique(slots.table.file[pages]).size > 1:
        return False
    nbytes, span = _span(slots, pages)
    return nbytes <= most_bytes and span <= (most_pages or span)


def _cost(slots: PageSlots, costs: DiskCosts, pages: np.ndarray) -> float:
    return costs.request_s(*_span(slots, pages))


def _on_disk(slots: PageSlots, wanted: np.ndarray) -> np.ndarray:
    table = slots.table
    return wanted[np.lexsort((table.offset[wanted], table.file[wanted]))]


def _quadratic(
    slots: PageSlots, wanted: np.ndarray, costs: DiskCosts, most_bytes: int, most_pages: int | None
) -> float:
    """The recurrence as it stands in the paper, every end of every sequence tried."""
    pages, table = _on_disk(slots, wanted), slots.table
    columns = (table.file, table.offset, table.offset + table.nbytes, slots.slot)
    file, begin, end, slot = (column[pages].tolist() for column in columns)
    best = [0.0] * (pages.size + 1)
    for j in range(pages.size - 1, -1, -1):
        ways = []
        for e in range(j, pages.size):
            nbytes, span = end[e] - begin[j], slot[e] - slot[j] + 1
            if e == j or (file[e] == file[j] and nbytes <= most_bytes and span <= (most_pages or span)):
                ways.append(costs.request_s(nbytes, span) + best[e + 1])
        best[j] = min(ways)
    return best[0]


def _brute_force(
    slots: PageSlots, wanted: np.ndarray, costs: DiskCosts, *, follows: float = 1.0, **limits: Any
) -> float:
    """The cheapest of all ways to cut the pages, if a part adjacent to the previous one costs a share of a seek."""
    pages = _on_disk(slots, wanted)
    found = []
    for choice in product([False, True], repeat=max(pages.size - 1, 0)):
        parts = np.split(pages, np.flatnonzero(choice) + 1) if pages.size else []
        if all(_allowed(slots, part, **limits) for part in parts):
            saved_s = (1 - follows) * costs.seek_s * _going_on(slots, parts)
            found.append(sum(_cost(slots, costs, part) for part in parts) - saved_s)
    return min(found)


def _going_on(slots: PageSlots, parts: list[np.ndarray]) -> int:
    """Return the number of parts that begin where the previous one ended."""
    file, begin, end = slots.table.file, slots.table.offset, slots.table.offset + slots.table.nbytes
    borders = [(before[-1], after[0]) for before, after in pairwise(parts)]
    return sum(bool(file[a] == file[b] and end[a] == begin[b]) for a, b in borders)


def _check(plan: ReadPlan, slots: PageSlots, wanted: np.ndarray, costs: DiskCosts, **limits: Any) -> None:
    """Check the properties of every plan."""
    assert plan.pages.tolist() == _on_disk(slots, wanted).tolist()
    sequences = list(plan)
    assert len(sequences) == len(plan) == plan.cuts.size - 1
    assert [page for sequence in sequences for page in sequence.pages] == plan.pages.tolist()
    for sequence, nbytes in zip(sequences, plan.span_bytes, strict=True):
        assert _allowed(slots, sequence.pages, **limits)
        assert (nbytes, sequence.span_pages) == _span(slots, sequence.pages)
    assert plan.cost_s == pytest.approx(sum(_cost(slots, costs, sequence.pages) for sequence in sequences))


@settings(deadline=None, max_examples=500)
@given(problems(most_pages=150))
def test_optimal_plan_costs_what_the_quadratic_program_finds(problem: Any) -> None:
    slots, wanted, costs, limits = problem
    plan = optimal_plan(slots, wanted, costs, **limits)
    _check(plan, slots, wanted, costs, **limits)
    assert plan.cost_s == pytest.approx(_quadratic(slots, wanted, costs, **limits))


@settings(deadline=None, max_examples=60)
@given(problems(most_pages=10))
def test_no_other_plan_is_cheaper(problem: Any) -> None:
    slots, wanted, costs, limits = problem
    assert optimal_plan(slots, wanted, costs, **limits).cost_s == pytest.approx(
        _brute_force(slots, wanted, costs, **limits)
    )


@settings(deadline=None, max_examples=200)
@given(problems(most_pages=10), st.sampled_from([0.0, 0.2, 1.0]))
def test_no_other_plan_is_cheaper_for_a_head_that_goes_on(problem: Any, follows: float) -> None:
    slots, wanted, costs, limits = problem
    plan = optimal_plan(slots, wanted, replace(costs, follows=follows), goes_on=True, **limits)
    counted = max(follows, 1e-3)  # if costs are equal, fewer requests are better
    cheapest = _brute_force(slots, wanted, costs, follows=counted, **limits)
    parts = [sequence.pages for sequence in plan]
    own_s = sum(_cost(slots, costs, part) for part in parts) - (1 - counted) * costs.seek_s * _going_on(slots, parts)
    assert plan.cost_s == pytest.approx(own_s)
    assert plan.cost_s == pytest.approx(cheapest)
    assert plan.seeks == len(plan) - _going_on(slots, parts)


def test_a_head_that_goes_on_reads_across_a_small_gap_and_is_not_cut_there() -> None:
    """Pages 0 to 9 but 4, up to five at once: SSIJ's plan has two sequences, and a seek between them."""
    slots = PageSlots.of(page_table([Place(0, i, 8 * i, 8, i) for i in range(10)]))
    wanted, costs = np.delete(np.arange(10), 4), DiskCosts(seek_s=80.0, transfer_s_per_page=1.0, follows=0.0)
    apart = optimal_plan(slots, wanted, costs, most_bytes=40)
    assert [sequence.pages.tolist() for sequence in apart] == [[0, 1, 2, 3], [5, 6, 7, 8, 9]]
    plan = optimal_plan(slots, wanted, costs, most_bytes=40, goes_on=True)
    assert plan.span_pages.sum() == 10
    assert _going_on(slots, [sequence.pages for sequence in plan]) == len(plan) - 1 == 2


@settings(deadline=None, max_examples=200)
@given(problems(), st.integers(0, 12))
def test_greedy_plan_keeps_to_its_rule_and_is_never_cheaper(problem: Any, most_unwanted: int) -> None:
    slots, wanted, costs, limits = problem
    plan = greedy_plan(slots, wanted, costs, most_unwanted=most_unwanted, **limits)
    _check(plan, slots, wanted, costs, **limits)
    assert plan.cost_s >= optimal_plan(slots, wanted, costs, **limits).cost_s * (1 - 1e-12)
    for sequence in plan:
        assert (np.diff(slots.slot[sequence.pages]) <= most_unwanted + 1).all()
    for before, after in pairwise(plan):
        joint = np.append(before.pages, after.pages[0])
        unwanted = slots.slot[joint[-1]] - slots.slot[joint[-2]] - 1
        assert unwanted > most_unwanted or not _allowed(slots, joint, **limits)  # it went as far as it could


@settings(deadline=None, max_examples=200)
@given(problems())
def test_unwanted_pages_are_read_across_when_that_takes_less_than_a_seek(problem: Any) -> None:
    """SSIJ's maxDist: within the limits, neither a dear gap is inside a sequence nor a cheap one between two."""
    slots, wanted, costs, limits = problem

    def gap_s(a: int, b: int) -> float:
        return _cost(slots, costs, np.array([a, b])) - sum(_cost(slots, costs, np.array([p])) for p in (a, b))

    plan = optimal_plan(slots, wanted, costs, **limits)
    for sequence in plan:
        for a, b in pairwise(sequence.pages.tolist()):
            assert gap_s(a, b) <= 1e-9
    for before, after in pairwise(plan):
        joint = np.append(before.pages, after.pages)
        if _allowed(slots, joint, **limits):
            assert gap_s(int(before.pages[-1]), int(after.pages[0])) >= -1e-9


@pytest.mark.parametrize(("dist", "sequences"), [(1, 1), (10, 1), (11, 2), (12, 2)])
def test_two_pages_are_read_together_below_the_papers_distance(dist: int, sequences: int) -> None:
    """S / T = 10: sequential if dist < 1 + S / T, and if not, two random reads."""
    slots = PageSlots.of(page_table([Place(0, i, 8 * i, 8, i) for i in range(20)]))
    wanted = np.array([2, 2 + dist])
    costs = DiskCosts(seek_s=10.0, transfer_s_per_page=1.0)
    plan = optimal_plan(slots, wanted, costs, most_bytes=1000)
    assert (len(plan), plan.cost_s) == (sequences, min(2 * (10 + 1), 10 + dist + 1))


def test_optimal_plan_beats_the_greedy_one_where_the_limit_cuts_badly() -> None:
    """Greedy fills the first sequence up to maxScan and so breaks a block that a cut at the gap would leave whole."""
    slots = PageSlots.of(page_table([Place(0, i, 8 * i, 8, i) for i in range(12)]))
    wanted, costs = np.array([0, 3, 4, 5, 6]), DiskCosts(seek_s=3.0, transfer_s_per_page=1.0)
    greedy = greedy_plan(slots, wanted, costs, most_unwanted=2, most_bytes=8 * 4)
    optimal = optimal_plan(slots, wanted, costs, most_bytes=8 * 4)
    assert [s.pages.tolist() for s in greedy] == [[0, 3], [4, 5, 6]]
    assert [s.pages.tolist() for s in optimal] == [[0], [3, 4, 5, 6]]
    assert (greedy.cost_s, optimal.cost_s) == (13.0, 11.0)


@settings(deadline=None)
@given(st.data())
def test_times_per_page_and_per_byte_agree_when_pages_have_one_size(data: st.DataObject) -> None:
    slots = PageSlots.of(page_table(data.draw(layouts(most_pages=60, one_size=True))))
    wanted = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(slots.table), max_size=len(slots.table))))
    scan = data.draw(st.integers(1, 12))
    by_page = optimal_plan(slots, wanted, DiskCosts(5.0, transfer_s_per_page=2.0), most_bytes=10**6, most_pages=scan)
    by_byte = optimal_plan(slots, wanted, DiskCosts(5.0, transfer_s_per_byte=0.25), most_bytes=8 * scan)
    assert by_page.cuts.tolist() == by_byte.cuts.tolist()
    assert by_page.cost_s == by_byte.cost_s


@settings(deadline=None)
@given(layouts(most_pages=60, one_size=True))
def test_slots_are_places_on_disk_with_those_of_replaced_pages(places: list[Place]) -> None:
    slot = PageSlots.of(page_table(places)).slot
    live = [place for place in places if place.page >= 0]
    for a, b in pairwise(live):
        step = b.index - a.index if a.file == b.file else 1
        assert slot[b.page] - slot[a.page] == step


def test_page_named_twice_is_read_once_and_no_pages_need_no_plan() -> None:
    slots = PageSlots.of(page_table([Place(0, i, 8 * i, 8, i) for i in range(9)]))
    costs = DiskCosts(seek_s=1.0)
    plan = optimal_plan(slots, np.array([7, 1, 7, 1, 1, 3]), costs, most_bytes=100)
    assert plan.pages.tolist() == [1, 3, 7]
    for empty in (
        optimal_plan(slots, np.array([], np.intp), costs, most_bytes=1),
        greedy_plan(slots, np.array([], np.intp), costs, most_unwanted=0, most_bytes=1),
    ):
        assert (len(empty), list(empty), empty.cost_s, empty.cuts.tolist()) == (0, [], 0.0, [0])


def test_plan_of_a_million_pages_takes_the_memory_it_says() -> None:
    """It takes hardly any time; a quadratic program would take hours."""
    pages = 1_200_000
    table = PageTable(
        np.zeros(pages, np.int32),
        np.ones(pages, np.int32),
        np.arange(pages),
        np.arange(pages),
        (SegmentTable.unverified(np.arange(pages) * 8192, np.full(pages, 8192), np.zeros(pages, np.uint64)),),
    )
    wanted = np.random.default_rng(0).permutation(pages)[:1_000_000]
    costs = DiskCosts(seek_s=1.0)
    optimal_plan(PageSlots.of(table.take(slice(3))), np.arange(3), costs, most_bytes=1)  # compiled
    for most_bytes in (1, 8192 * 200, 1 << 40):
        tracemalloc.start()
        slots = PageSlots.of(table)
        assert tracemalloc.get_traced_memory()[1] <= PageSlots.memory_bytes(pages)
        tracemalloc.stop()
        tracemalloc.start()
        plan = optimal_plan(slots, wanted, costs, most_bytes=most_bytes)
        assert tracemalloc.get_traced_memory()[1] <= plan_memory_bytes(wanted.size)
        tracemalloc.stop()
        # If only seeks cost, the fewest sequences are best, and the greedy plan finds them.
        assert len(plan) == len(greedy_plan(slots, wanted, costs, most_unwanted=pages, most_bytes=most_bytes))


@pytest.mark.parametrize("limits", [{"most_bytes": 0}, {"most_bytes": 5, "most_pages": 0}])
def test_limits_below_one_page_are_refused(limits: dict[str, int]) -> None:
    slots = PageSlots.of(page_table([Place(0, 0, 0, 8, 0)]))
    with pytest.raises(InvalidArgument, match="give at least 1 for each"):
        optimal_plan(slots, np.array([0]), DiskCosts(1.0), **limits)
    with pytest.raises(InvalidArgument, match="most_unwanted is -1"):
        greedy_plan(slots, np.array([0]), DiskCosts(1.0), most_unwanted=-1, most_bytes=1)
