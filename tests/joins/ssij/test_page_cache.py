"""The page cache of SSIJ against brute force: the pages kept, the order of eviction, and freed memory."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistream.budget import MemoryBudget
from semistream.joins.ssij.kernels import CACHED, NOWHERE, WAITS, choose_kept, look_up, next_wanted
from semistream.joins.ssij.page_cache import FrameArena, PageCache
from semistream.joins.ssij.replacement import POLICIES, Utility
from semistream.relation import PageRun, Relation
from tests.joins.mesh.test_mesh import pages_relation

BLOCK = mmap.PAGESIZE


@st.composite
def choices(draw: st.DrawFn) -> dict[str, np.ndarray | int]:
    pages = draw(st.integers(0, 25))
    column = st.lists
    worth = draw(column(st.integers(-1, 6), min_size=pages, max_size=pages))
    cached = draw(column(st.booleans(), min_size=pages, max_size=pages))
    sizes = draw(column(st.sampled_from([100, 4000, 4096, 4097, 9000]), min_size=pages, max_size=pages))
    return {
        "worth": np.array(worth, np.int32),
        "frame_of": np.where(np.array(cached, np.bool_), 0, -1).astype(np.int32),
        "nbytes": np.array(sizes, np.int64),
        "capacity": draw(st.integers(0, 25 * 9000)),
    }


@settings(deadline=None, max_examples=300)
@given(choices())
def test_pages_of_the_greatest_worth_are_kept(choice: dict) -> None:
    """Compare with a sort: the pages worth more than the first that do not all fit, and as many of these as fit."""
    worth, frame_of, nbytes, capacity = choice.values()
    kept = np.empty(worth.size, np.bool_)
    choose_kept(worth, frame_of, nbytes, 4096, 8192, 10, capacity, kept)
    cost = np.maximum(-(-nbytes // 4096) * 4096, 8192) + 10
    expected: set[int] = set()
    spare = capacity
    for value in range(6, -1, -1):
        same = np.flatnonzero(worth == value)
        all_fit = cost[same].sum() <= spare
        for page in sorted(same.tolist(), key=lambda p: (frame_of[p] < 0, p)):
            if cost[page] <= spare:
                expected.add(page)
                spare -= cost[page]
        if not all_fit:
            break
    assert set(np.flatnonzero(kept).tolist()) == expected
    assert cost[kept].sum() <= capacity


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4)), max_size=20),
    st.lists(st.tuples(st.integers(-5, 70), st.integers(0, 12)), max_size=30),
    st.integers(0, 2**20),
)
def test_tuples_are_looked_up_like_one_after_the_other(pages, asked, lot: int) -> None:
    """Against each tuple with each page; neighbouring pages may share a code, and a code may fill several pages."""
    starts = np.sort(np.array([first for first, _ in pages], np.int64))
    lasts = np.array([first + length for first, (_, length) in zip(starts, pages, strict=True)], np.int64)
    lasts[:-1] = np.minimum(lasts[:-1], starts[1:])
    asked.sort()
    low = np.array([a for a, _ in asked], np.int64)
    high = low + np.array([b for _, b in asked], np.int64)
    cached = np.array([lot >> page & 1 for page in range(starts.size)], np.bool_)
    frame_of = np.where(cached, np.cumsum(cached) - 1, -1).astype(np.int32)
    waiting, met = np.zeros(starts.size, np.int32), np.zeros(starts.size, np.int32)
    outcome = np.empty(low.size, np.int8)
    awaited = look_up(low, high, starts, lasts, frame_of, waiting, met, outcome)
    expected_waiting, expected_met = np.zeros_like(waiting), np.zeros_like(met)
    for i in range(low.size):
        needed = np.flatnonzero((starts <= high[i]) & (lasts >= low[i]))
        assert outcome[i] == (NOWHERE if needed.size == 0 else CACHED if cached[needed].all() else WAITS)
        if outcome[i] == CACHED:
            expected_met[frame_of[needed]] += 1
        elif outcome[i] == WAITS:
            expected_waiting[needed] += 1
    assert waiting.tolist() == expected_waiting.tolist()
    assert met.tolist() == expected_met.tolist()
    assert awaited == np.count_nonzero(waiting)
    found: list[int] = []
    three = np.empty(3, np.intp)
    while count := next_wanted(waiting, found[-1] + 1 if found else 0, three):
        found.extend(three[:count].tolist())
    assert found == np.flatnonzero(waiting).tolist()


def a_cache(relation: Relation, nbytes: int = 1 << 20, policy: str = "utility") -> tuple[PageCache, MemoryBudget]:
    budget = MemoryBudget(1 << 30)
    return PageCache(relation, nbytes, budget, POLICIES[policy]()), budget


def fill(cache: PageCache, pages: list[int]) -> None:
    for run in cache.relation.read_pages(np.array(pages, np.intp)):
        cache.put(run, np.ones(run.pages.size, np.bool_))


def held(cache: PageCache) -> list[int]:
    return np.flatnonzero(cache.frame_of >= 0).tolist()


def keys_of(run: PageRun) -> dict[int, list[int]]:
    return {int(page): run.batch(i, ["k"]).column(0).to_pylist() for i, page in enumerate(run.pages)}


def meet(cache: PageCache, tuples: dict[int, int]) -> None:
    for page, count in tuples.items():
        cache.met[cache.frame_of[page]] = count
    cache.count_joined()


@pytest.mark.parametrize("policy", ["utility", "lru"])
def test_cached_pages_are_the_pages(tmp_path: Path, policy: str) -> None:
    relation = pages_relation(tmp_path, pages=12, rows_per_page=3)
    cache, budget = a_cache(relation, policy=policy)
    fill(cache, [7, 2, 3, 11])
    cache.met[cache.frame_of[[11, 2]]] = 1
    assert keys_of(cache.met_pages()) == {2: [6, 7, 8], 11: [33, 34, 35]}
    cache.waiting[[2, 5, 7]] = 4
    assert keys_of(cache.awaited_pages()) == {2: [6, 7, 8], 7: [21, 22, 23]}
    assert cache.pages == 4
    assert budget.by_name == {"cached pages": cache.nbytes}
    assert cache.nbytes >= relation.table.nbytes[[2, 3, 7, 11]].sum()


def test_pages_of_the_least_utility_go_first_and_those_behind_among_equals(tmp_path: Path) -> None:
    cache, budget = a_cache(pages_relation(tmp_path, pages=10))
    fill(cache, list(range(8)))
    meet(cache, {0: 5, 1: 2, 2: 9, 3: 2})
    cache.waiting[[5, 6]] = [3, 1]  # tuples that wait count too
    one = cache.nbytes // 8
    gone = []
    while cache.pages:
        before = set(held(cache))
        cache.shrink(cache.nbytes - 1)
        gone.extend(before - set(held(cache)))
        assert budget.by_name.get("cached pages", 0) == cache.nbytes == one * cache.pages
    assert gone == [7, 4, 6, 3, 1, 5, 0, 2]
    cache.waiting[:] = 0
    fill(cache, list(range(8)))
    meet(cache, {2: 1, 3: 1})
    cache.shrink(int(2.5 * one))  # several at once are the same ones
    assert held(cache) == [2, 3]
    cache.shrink(-1)
    assert held(cache) == []


def test_lru_evicts_the_least_recently_used_pages(tmp_path: Path) -> None:
    cache, _ = a_cache(pages_relation(tmp_path, pages=10), policy="lru")
    fill(cache, [0, 1, 2, 3])
    meet(cache, {0: 100, 1: 1})
    meet(cache, {2: 1})
    cache.waiting[[7, 8]] = 1
    one = cache.nbytes // 4
    assert np.flatnonzero(cache.choose(4 * one)).tolist() == [0, 2, 7, 8]  # a page just read is the most recent
    assert np.flatnonzero(cache.choose(2 * one)).tolist() == [7, 8]
    cache.keep(cache.choose(3 * one))
    fill(cache, [7, 8])
    cache.served(np.array([7, 8]))
    cache.end_phase()
    meet(cache, {2: 1})
    assert held(cache) == [2, 7, 8]
    cache.shrink(2 * one)
    assert held(cache) == [2, 7]


def test_to_keep_and_to_remove(tmp_path: Path) -> None:
    """SSIJ IV-C: a page read replaces a cached page of less worth, and no other."""
    cache, _ = a_cache(pages_relation(tmp_path, pages=10))
    fill(cache, [0, 1, 2, 3])
    meet(cache, {0: 4, 1: 2, 2: 1})
    cache.waiting[[5, 6, 7]] = [3, 2, 1]
    capacity = cache.nbytes
    assert np.flatnonzero(cache.choose(capacity)).tolist() == [0, 1, 5, 6]
    assert np.flatnonzero(cache.choose(capacity // 2)).tolist() == [0, 5]
    assert np.flatnonzero(cache.choose(10 * capacity)).tolist() == [0, 1, 2, 3, 5, 6, 7]
    assert np.flatnonzero(cache.choose(0)).tolist() == []
    cache.waiting[1] = 2  # those who wait for a cached page speak for it
    assert np.flatnonzero(cache.choose(capacity // 4)).tolist() == [0]
    cache.waiting[1] = 3
    assert np.flatnonzero(cache.choose(capacity // 4)).tolist() == [1]


def test_what_is_carried_over_to_another_version(tmp_path: Path) -> None:
    table = pa.table({"k": range(100), "v": ["x" * 100] * 100})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=1024)
    cache, budget = a_cache(relation)
    fill(cache, list(range(relation.num_pages)))
    updated = relation.update(pa.table({"k": [-5, 42], "v": ["new", "y" * 100]}), deletes=[99])
    new_numbers = updated.pages_kept_from(relation)
    assert cache.suits(updated, 1 << 20)
    cache.carry_over(updated, new_numbers)
    cache.charge()
    kept = new_numbers[new_numbers >= 0]
    assert 0 < kept.size < relation.num_pages
    assert held(cache) == sorted(kept.tolist())
    cache.waiting[:] = 1
    found = keys_of(cache.awaited_pages())
    first, last = updated.table.first_code, updated.table.last_code
    assert found == {int(page): list(range(first[page], last[page] + 1)) for page in kept}
    assert budget.by_name == {"cached pages": cache.nbytes}
    cache.keep(np.zeros(updated.num_pages, np.bool_))
    assert cache.nbytes == 0


def test_a_cache_that_does_not_suit_says_so(tmp_path: Path) -> None:
    relation = pages_relation(tmp_path, pages=4)
    cache, _ = a_cache(relation, nbytes=1 << 20)
    assert cache.suits(relation, 1 << 20)
    assert cache.suits(relation, 1_100_000)
    assert not cache.suits(relation, 1 << 21)
    assert not cache.suits(relation, 1 << 18)
    (tmp_path / "wide").mkdir()
    table = pa.table({"k": range(4), "filler": [b"\x00" * 9000] * 4})
    assert not cache.suits(Relation.build(table, tmp_path / "wide" / "r", key="k"), 1 << 20)


def test_frames_are_enough_for_all_that_the_bytes_hold(tmp_path: Path) -> None:
    """Pages from a block to twenty: whatever is chosen within the capacity finds a frame."""
    sizes = [10 * 4 ** (i % 7) for i in range(140)]
    table = pa.table({"k": range(140), "v": [b"\x01" * size for size in sizes]})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=2048)
    for nbytes in (0, 5_000, 50_000, 300_000, 3_000_000):
        cache, budget = a_cache(relation, nbytes=nbytes)
        cache.waiting[:] = np.arange(relation.num_pages) % 5 + 1
        kept = cache.choose(nbytes)
        fill(cache, np.flatnonzero(kept).tolist())
        assert budget.by_name.get("cached pages", 0) <= nbytes
    assert kept.all()


def resident_bytes(arena: FrameArena) -> int:
    """Return the bytes of the arena in memory, as reported by the system."""
    address = arena.buffer.ctypes.data
    for block in Path("/proc/self/smaps").read_text().split("VmFlags")[:-1]:
        lines = block.strip().splitlines()
        head = next(line for line in lines if "-" in line.split()[0] and not line.startswith(("VmFlags", ":")))
        begin = int(head.split("-")[0], 16)
        if begin == address:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
    raise AssertionError("the arena is not mapped")


def test_memory_of_pages_that_go_goes_back_to_the_system() -> None:
    frame = 16 * BLOCK
    arena = FrameArena(200, frame)
    assert resident_bytes(arena) == 0  # addresses take no memory
    arena.buffer[: 150 * frame] = 1
    assert resident_bytes(arena) == 150 * frame
    arena.give_back(np.array([7, 3, 4, 5, 149, 0]))
    assert resident_bytes(arena) == 144 * frame
    assert not arena.buffer[3 * frame : 6 * frame].any()
    assert arena.buffer[6 * frame : 7 * frame].all()
    arena.give_back(np.arange(150))
    assert resident_bytes(arena) == 0


def test_a_cache_is_charged_for_the_memory_it_holds(tmp_path: Path) -> None:
    relation = pages_relation(tmp_path, pages=60)
    cache, _ = a_cache(relation)
    fill(cache, list(range(60)))
    one = resident_bytes(cache._arena) // 60
    assert one == BLOCK
    cache.shrink(cache.nbytes // 2)
    assert resident_bytes(cache._arena) == cache.pages * one == 30 * one
    cache.keep(np.arange(60) < 5)
    assert resident_bytes(cache._arena) == cache.pages * one == 5 * one
    fill(cache, [20, 21])
    assert resident_bytes(cache._arena) == cache.pages * one == 7 * one


def test_an_arena_may_be_far_larger_than_memory() -> None:
    arena = FrameArena(1 << 20, 1 << 22)  # 4 TB
    arena.buffer[-BLOCK:] = 1
    assert resident_bytes(arena) == BLOCK


@settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(st.integers(0, 2**31), max_size=6), max_size=6))
def test_utilities_add_up_until_the_phase_ends(counts: list[list[int]]) -> None:
    worth = np.zeros(6, np.int32)
    expected = np.zeros(6, np.int64)
    for some in counts:
        tuples = np.zeros(6, np.int32)
        tuples[: len(some)] = np.array(some, np.int64) % 1000
        Utility().joined(worth, tuples)
        expected += tuples
    assert worth.tolist() == expected.tolist()
    Utility().end_phase(worth)
    assert not worth.any()
