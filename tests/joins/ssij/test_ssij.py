"""SemiStreamingIndexJoin as the paper describes it: phases, Algorithms 1 and 2, the cache, one pool of memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream import Relation, SemiStreamingIndexJoin
from semistream.datasets import Zipf
from semistream.errors import BudgetError, InvalidArgument
from semistream.relation import SimulatedDisk
from tests.joins.clocks import TickingClock
from tests.joins.mesh.test_mesh import pages_relation
from tests.joins.ssij.small_joins import NO_SEEKS, SCHEMA, cached_pages, keys, out, ssij
from tests.oracle import batch_join, multiset


class EveryRequestSeeks(SimulatedDisk):
    """A disk as SSIJ IV-D has it: each sequence costs S + T * N, also one that begins where the last one ended."""

    def _count(self, path: Path, offset: int, nbytes: int, pages: int) -> bool:
        self._head = None
        return super()._count(path, offset, nbytes, pages)


def test_thresholds_start_the_phases(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=4, rows_per_page=2)
    with ssij(relation, input_threshold=3, stream_threshold=5, disk=NO_SEEKS()) as join:
        assert out(join.push(keys(0, 4))) == []  # pending
        assert (join.stats.steps, join.stats.rows_waiting) == (0, 2)
        assert out(join.push(keys(5))) == []  # IB_thresh: an online phase, but nothing is cached yet
        assert (join.stats.steps, join.stats.pages_read, join.stats.inserts) == (1, 0, 3)
        assert out(join.push(keys(1, 1, 0))) == [0, 0, 1, 1, 4, 5]  # SB_thresh: online, then a join phase
        assert (join.stats.steps, join.stats.pages_read, join.stats.rows_waiting) == (3, 2, 0)
        assert cached_pages(join) == {0, 2}
        assert out(join.push(keys(0, 7, 5))) == [0, 5]  # two find their pages in memory, one waits
        assert (join.stats.cache_hits, join.stats.rows_waiting) == (2, 1)
        assert out(join.push(keys(4, 1))) == []
        assert out(join.step()) == [1, 4]  # a step is the phase that has something to do
        assert out(join.step()) == [7]
        assert out(join.step()) == []
    assert join.stats.pages_read == 3
    assert join.stats.probes == 11
    assert join.stats.inserts == join.stats.expiries == 7


def test_an_online_phase_reads_nothing_and_a_join_phase_reads_each_page_once(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=30, rows_per_page=2)
    with ssij(relation, disk=NO_SEEKS(), input_threshold=50, stream_threshold=10_000) as join:
        stream = np.random.default_rng(1).integers(0, 60, 400)
        assert out(join.push(keys(*stream.tolist()))) == []
        assert (join.stats.steps, join.stats.pages_read) == (8, 0)
        assert out(join.step()) == sorted(stream.tolist())
        assert join.stats.pages_read == np.unique(stream // 2).size


def test_tuples_that_no_page_can_serve_leave_without_waiting(tmp_path) -> None:
    table = pa.table({"k": [*range(12), *range(20, 32)], "filler": [b"\x00" * 300] * 24})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=4096)
    with ssij(relation, columns=None, how="left") as join:
        list(join.push(keys(None, 99, -1, 15, None)))
        assert [b.num_rows for b in join.step()] == [5]
        assert (join.stats.pages_read, join.stats.unmatched, join.stats.inserts, join.stats.cache_hits) == (0, 5, 0, 0)


def test_keys_on_several_pages_are_counted_once_and_never_joined_by_halves(tmp_path) -> None:
    r_keys = [1, 2, 3, *[5] * 12, 7, 8, 9]
    relation = Relation.build(
        pa.table({"k": r_keys, "filler": [b"\x00" * 850] * len(r_keys)}), tmp_path / "r", key="k", page_bytes=4096
    )
    assert relation.num_pages > 4
    with ssij(relation, disk=NO_SEEKS()) as join:
        assert out(join.push(keys(2))) == []
        assert out(join.step()) == []
        assert out(join.step()) == [2]  # a page that holds some of the fives is cached now
        assert cached_pages(join) == {0}
        list(join.push(keys(5, 1)))
        assert out(join.step()) == [1]  # not the fives of the first page
        assert out(join.step()) == [5] * 12
        assert join.stats.pages_read == relation.num_pages - (relation.table.first_code > 5).sum()
        list(join.push(keys(5, 5)))
        assert out(join.step()) == [5] * 24
        assert (join.stats.matched, join.stats.cache_hits) == (5, 3)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_key_whose_rows_are_more_than_the_memory_streams_out(tmp_path, how: str) -> None:
    r_keys = [1, 2, *[5] * 4000, 8, 9]
    table = pa.table({"k": r_keys, "text": [f"{i:0100}" for i in range(len(r_keys))]})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=2048)
    memory = 70_000
    assert relation.nbytes > 5 * memory
    stream = pa.table({"s": [5, 2, 8, 5, 5, 1, 6]})
    options = {} if how in ("semi", "anti") else {"columns": None}
    with SemiStreamingIndexJoin(relation, SCHEMA, on={"s": "k"}, how=how, memory=memory, **options) as join:
        for _ in range(2):
            results = [*join.push(stream.to_batches()[0]), *join.flush()]
            expected = batch_join(stream, table, {"s": "k"}, how, ["text"])
            assert multiset(pa.Table.from_batches(results)) == multiset(expected)
    assert join.stats.peak_bytes <= memory
    assert max(batch.nbytes for batch in results) < memory / 3


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_ranges_of_the_key_are_served_from_the_cache_too(tmp_path, how: str) -> None:
    table = pa.table({"k": [i * 3 for i in range(900)], "v": range(900)})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=1024)
    schema = pa.schema([("low", pa.int64()), ("high", pa.int64())])
    low = np.random.default_rng(2).integers(-50, 2800, 300)
    stream = pa.table({"low": low, "high": low + np.arange(300) % 90 - 20}, schema=schema)
    pairs = [
        (a, b, k, v)
        for a, b in zip(*stream.to_pydict().values(), strict=True)
        for k, v in zip(*table.to_pydict().values(), strict=True)
        if a <= k <= b
    ]
    for memory in (60_000, 120_000, "1MB"):
        options = {"where": "r.k BETWEEN s.low AND s.high", "how": how, "memory": memory, "input_threshold": 40}
        with SemiStreamingIndexJoin(relation, schema, stream_threshold=90, **options) as join:
            for _ in range(2):
                results = [b for batch in stream.to_batches(max_chunksize=70) for b in join.push(batch)]
                results = pa.Table.from_batches([*results, *join.flush()], join.schema)
                met = {(a, b) for a, b, *_ in pairs}
                left = [row for row in stream.to_pylist() if ((row["low"], row["high"]) in met) == (how == "semi")]
                expected = len(pairs) if how == "inner" else len(left) + (len(pairs) if how == "left" else 0)
                assert results.num_rows == expected
                if how == "inner":
                    rows = results.to_pylist()
                    assert Counter((r["low"], r["high"], r["k"], r["v"]) for r in rows) == Counter(pairs)
        assert join.stats.cache_hits > 0 or memory == 60_000


def test_conditions_without_the_key_are_refused(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=2)
    with pytest.raises(InvalidArgument, match="'index' finds rows by the relation's key"):
        SemiStreamingIndexJoin(relation, pa.schema([("s", pa.binary())]), on={"s": "filler"}, memory="1MB")


def run_zipf(relation: Relation, disk: SimulatedDisk, stream: np.ndarray, **options: object) -> SemiStreamingIndexJoin:
    batches = [keys(*stream[i : i + 500].tolist()) for i in range(0, stream.size, 500)]
    with ssij(relation, disk=disk, input_threshold=250, stream_threshold=500, **options) as join:
        produced = Counter(value for batch in batches for value in out(join.push(batch)))
        produced.update(out(join.flush()))
    assert produced == Counter(stream.tolist())
    return join


@pytest.mark.parametrize("memory", [300_000, 500_000, 700_000])
def test_caching_by_utility_beats_lru_at_equal_memory(tmp_path, memory: int) -> None:
    """SSIJ VI-D, Fig. 11: LRU treats pages read by a join phase as more recent than all cached pages."""
    relation = pages_relation(tmp_path, pages=400, rows_per_page=4)
    stream = Zipf(1.0, 1600, seed=7, permute=False).keys(30_000)
    joins = {}
    for policy in ("utility", "lru"):
        disk = SimulatedDisk(seek_s=0.0004, transfer_s=0.0001)
        joins[policy] = run_zipf(relation, disk, stream, memory=memory, cache_policy=policy)
    by_utility, by_age = joins["utility"].stats, joins["lru"].stats
    assert by_utility.cache_hits > 1.3 * by_age.cache_hits
    assert by_utility.pages_read < by_age.pages_read
    assert joins["utility"]._disk.now_s < joins["lru"]._disk.now_s


def test_more_memory_means_fewer_reads(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=400, rows_per_page=4)
    stream = Zipf(1.0, 1600, seed=7, permute=True).keys(20_000)
    times = []
    for memory in (300_000, 500_000, 900_000, 2_500_000):
        disk = SimulatedDisk(seek_s=0.0004, transfer_s=0.0001)
        times.append((run_zipf(relation, disk, stream, memory=memory), disk.now_s)[1])
    assert all(more < less for less, more in pairwise(times))


@pytest.mark.parametrize("seek_s", [0.0, 0.0002, 0.001, 0.01])
@pytest.mark.parametrize("pages_per_read", [1, 3, 8, None])
def test_the_optimal_plan_is_never_dearer_than_the_greedy_one(tmp_path, seek_s: float, pages_per_read) -> None:
    """SSIJ IV-D: the same pages are wanted in every join phase of both runs."""
    relation = pages_relation(tmp_path, pages=120, rows_per_page=2)
    stream = Zipf(0.5, 240, seed=3, permute=True).keys(6_000)
    times = {}
    for plan in ("optimal", "greedy"):
        disk = EveryRequestSeeks(seek_s=seek_s, transfer_s=0.0001)
        join = run_zipf(relation, disk, stream, memory=400_000, plan=plan, pages_per_read=pages_per_read)
        times[plan] = (disk.now_s, join.stats.cache_hits)
    assert times["optimal"][1] == times["greedy"][1]
    assert times["optimal"][0] <= times["greedy"][0] * (1 + 1e-9)
    if seek_s == 0.0002 and pages_per_read == 3:
        assert times["optimal"][0] < times["greedy"][0]


@pytest.mark.parametrize("plan", ["optimal", "greedy"])
@pytest.mark.parametrize(("dist", "pages", "requests"), [(10, 11, 1), (11, 2, 2)])
def test_unwanted_pages_are_read_along_below_the_papers_distance(
    tmp_path, plan: str, dist: int, pages: int, requests: int
) -> None:
    """S / T = 10: maxDist is 11."""
    relation = pages_relation(tmp_path, pages=30)
    with ssij(relation, disk=SimulatedDisk(seek_s=10.0, transfer_s=1.0), plan=plan) as join:
        list(join.push(keys(3, 3 + dist)))
        assert out(join.flush()) == [3, 3 + dist]
        assert (join.stats.pages_read, join.stats.requests) == (pages, requests)
        assert cached_pages(join) == {3, 3 + dist}  # pages read along the way are not kept


def test_utilities_count_from_zero_after_a_join_phase(tmp_path) -> None:
    """Algorithm 2, line 18: requests from before the last join phase count no more, even a hundred of them."""
    relation = pages_relation(tmp_path, pages=40)
    with ssij(relation, memory=300_000, disk=NO_SEEKS(), stream_threshold=1 << 40) as join:
        list(join.push(keys(*range(40))))
        list(join.flush())
        once_hot = min(cached_pages(join))
        assert 3 < join._cache.pages < 38
        list(join.push(keys(*[once_hot] * 100)))
        list(join.step())
        list(join.push(keys(39)))
        list(join.flush())  # a join phase: the page is kept, and its counter cleared
        assert once_hot in cached_pages(join)
        asked = sorted(cached_pages(join) - {once_hot})
        list(join.push(keys(*asked)))
        list(join.step())
        list(join.push(keys(38)))
        list(join.flush())
        assert cached_pages(join) >= {38, *asked}
        assert once_hot not in cached_pages(join)


def test_a_plan_made_in_stretches_reads_the_same_pages(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=300, rows_per_page=2)
    with pytest.raises(BudgetError) as refused:
        ssij(relation, memory=1, pages_per_read=1)
    with ssij(relation, memory=refused.value.least_bytes + 2000, pages_per_read=1, disk=NO_SEEKS()) as join:
        assert join._layout.planned_pages < 40
        stream = [key for start in range(2) for key in range(start, 600, 7)]
        results = Counter(out(join.push(keys(*stream))))
        results.update(out(join.flush()))
    assert results == Counter(stream)


def test_memory_moves_between_the_cache_and_the_stream(tmp_path) -> None:
    """SSIJ IV-A: a burst takes the memory of cached pages, and after it they come back."""
    relation = pages_relation(tmp_path, pages=200, rows_per_page=2)
    with ssij(relation, memory="1MB", input_threshold=1000, stream_threshold=1 << 40) as join:

        def held(name: str) -> int:
            return join.budget.by_name.get(name, 0)

        every_page = keys(*range(0, 400, 2))
        list(join.push(every_page))
        list(join.flush())
        full, cached = held("cached pages"), join._cache.pages
        assert full > 0.9 * join._pool - 10_000
        hot = sorted(cached_pages(join))[:10]
        list(join.push(keys(*[2 * page for page in hot] * 3)))
        list(join.step())  # these have a utility, the others have none
        burst = keys(*[399] * 2000)
        while held("cached pages") > full / 4:
            assert out(join.push(burst)) == []
            assert join.budget.used <= join.budget.limit
        assert held("stream tuples") + held("stream index") > full / 2
        assert set(hot) <= cached_pages(join)  # the least useful pages went first
        assert 0 < join._cache.pages < cached / 2
        assert len(out(join.flush())) == join.stats.rows_in - 230
        assert held("stream tuples") == 0
        list(join.push(every_page))
        list(join.flush())
        assert held("cached pages") == full


def test_a_stream_that_fills_the_memory_starts_a_join_phase(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=50, rows_per_page=2)
    with ssij(relation, memory=200_000, stream_threshold=1 << 40) as join:
        results = Counter()
        stream = np.random.default_rng(0).integers(0, 100, 40_000)
        for begin in range(0, stream.size, 3000):
            results.update(out(join.push(keys(*stream[begin : begin + 3000].tolist()))))
            assert join.budget.used <= 200_000
        assert results.total() > 0
        results.update(out(join.flush()))
    assert results == Counter(stream.tolist())


def test_thresholds_follow_from_the_memory_up_to_those_of_table_ii(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=20)
    joins = [ssij(relation, memory=memory) for memory in ("300kB", "3MB", "30MB", "900MB")]
    inputs, streams = [j.input_threshold for j in joins], [j.stream_threshold for j in joins]
    assert inputs == sorted(inputs)
    assert streams == sorted(streams)
    assert (inputs[-1], streams[-1]) == (250_000, 1_000_000)
    assert streams[0] < 10_000
    large = replace(relation)
    large.__dict__["nbytes"] = 100 * 900_000_000
    assert ssij(large, memory="900MB").stream_threshold == 400_000
    for join in joins:
        join.close()


def test_a_new_version_keeps_what_is_cached_of_the_pages_that_did_not_change(tmp_path) -> None:
    table = pa.table({"k": range(600), "v": range(600)})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=512)
    with SemiStreamingIndexJoin(relation, SCHEMA, on={"s": "k"}, memory="4MB") as join:
        every = keys(*range(600))
        list(join.push(every))
        list(join.flush())
        assert join.stats.pages_read == relation.num_pages == join._cache.pages
        updated = relation.update(pa.table({"k": [77, 300], "v": [-1, -2]}), deletes=[500])
        kept = (updated.pages_kept_from(relation) >= 0).sum()
        join.refresh(updated)
        results = pa.Table.from_batches([*join.push(every), *join.flush()])
        values = dict(zip(results["s"].to_pylist(), results["v"].to_pylist(), strict=True))
        assert values == {k: k for k in range(600) if k != 500} | {77: -1, 300: -2}
        assert join.stats.pages_read == relation.num_pages + updated.num_pages - kept
        assert kept > 0.8 * relation.num_pages


def test_what_is_cached_survives_another_budget_as_far_as_it_fits(tmp_path) -> None:
    relation = pages_relation(tmp_path, pages=200, rows_per_page=2)
    with ssij(relation, memory="1MB") as join:
        list(join.push(keys(*range(400))))
        list(join.flush())
        before = cached_pages(join)
        for memory in ("900kB", "1MB", 300_000):
            list(join.set_memory(memory))
            assert cached_pages(join) <= before
            assert join.budget.by_name.get("cached pages", 0) == join._cache.nbytes
            assert join.budget.used <= join.budget.limit
            if memory != 300_000:
                assert len(cached_pages(join)) > len(before) / 2
            before = cached_pages(join)
            assert out([*join.push(keys(*range(400))), *join.flush()]) == list(range(400))
            before |= cached_pages(join)


def test_a_deadline_starts_the_phases(tmp_path) -> None:
    """SSIJ IV-F: with just enough time for the awaited pages, tuples are admitted."""
    relation = pages_relation(tmp_path, pages=20, rows_per_page=2)
    clock = TickingClock(0.0)
    disk = SimulatedDisk(seek_s=0.1, transfer_s=0.1)
    with ssij(relation, disk=disk, deadline_s=10.0, clock=clock) as join:
        assert out(join.push(keys(0, 10, 11))) == []
        assert join.pages_to_drain() == 3  # as far as is known before they are looked up
        list(join.step())
        assert join.pages_to_drain() == 2
        assert out(join.poll()) == []
        assert 9 < join.due_s < 10
        clock.now_s += 9.9
        assert out(join.poll()) == [0, 10, 11]
        assert join.pages_to_drain() == 0
        assert join.stats.late == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("input_threshold", 0),
        ("stream_threshold", -1),
        ("pages_per_read", 0),
        ("plan", "fast"),
        ("cache_policy", "mru"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, option: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"{option} is {value!r}"):
        ssij(pages_relation(tmp_path, pages=1), **{option: value})


def test_an_idle_join_reads_nothing(tmp_path) -> None:
    with ssij(pages_relation(tmp_path, pages=3)) as join:
        assert list(join.step()) == []
        assert list(join.flush()) == []
        assert join.stats.pages_read == join.stats.steps == 0
