"""MatchCounts against GROUP BY: exact if all keys fit, otherwise bounded, and right after updates."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.budget import MemoryBudget
from semistream.errors import BudgetError, ColumnNotFound, InvalidArgument
from semistream.relation import ParquetRelation, Relation, RunReader
from semistream.relation.format.manifest import match_counts_name
from semistream.shedding import MatchCounts, StreamPart
from semistream.shedding.counting import SLOT_BYTES, count_anew, count_clustered, count_scattered
from semistream.shedding.match_counts import LEAST_BYTES
from tests.relation.row_sets import scratch_folder

SMALL = 64 * 64  # bytes of 64 keys, the least there is


def build(folder: Path, keys: Any, **options: Any) -> Relation:
    table = pa.table({"id": keys, "name": pa.array([f"name {i}" for i in range(len(keys))], pa.string())})
    return Relation.build(table, folder / "r", key="id", **{"page_bytes": 1024, **options})


def grouped(relation: Relation | ParquetRelation) -> dict[Any, int]:
    """The rows of each key, by DuckDB."""
    with duckdb.connect() as connection:
        connection.register("r", relation.scan().read_all())
        return dict(connection.sql("SELECT id, count(*) FROM r WHERE id IS NOT NULL GROUP BY id").fetchall())


def check(counts: MatchCounts, truth: dict[int, int], *, least_key: int = -50, most_key: int = 4000) -> None:
    """Check that the counts of any key, present or not, are true; unlisted keys count for at least one."""
    codes = np.arange(least_key, most_key)
    expected = np.array([truth.get(code, 0) for code in codes.tolist()])
    found = counts.matches(codes)
    low, high = counts.bounds(codes)
    assert np.all((low <= expected) & (expected <= high))
    assert np.all((low <= found) & (found <= np.maximum(high, 1)))
    most = max(truth.values(), default=0)
    assert counts.unique == (most <= 1) if counts.bound <= 1 and counts.slack == 0 else not counts.unique
    if counts.exact:
        assert found.tolist() == expected.tolist()
    else:
        assert np.all(found >= 1)


def test_counts_that_fit_are_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    relation = build(tmp_path, rng.geometric(0.01, 20_000))
    budget = MemoryBudget("1MB")
    counts = MatchCounts.of(relation, budget)
    assert counts.exact
    assert (counts.bound, counts.slack) == (0, 0)
    check(counts, grouped(relation))
    assert budget.by_name == {"match counts": counts.counted.nbytes}
    counts.release()
    assert budget.used == 0


@pytest.mark.parametrize("skew", [1.2, 2.0])
def test_with_little_memory_the_most_frequent_keys_are_exact_and_others_bounded(tmp_path: Path, skew: float) -> None:
    keys = np.random.default_rng(2).zipf(skew, 30_000).clip(max=3500)
    relation = build(tmp_path, keys)
    budget = MemoryBudget(SMALL)
    counts = MatchCounts.of(relation, budget)
    truth = grouped(relation)
    check(counts, truth)
    assert not counts.exact
    assert counts.slack == 0
    assert budget.peak <= SMALL
    above = [key for key, rows in truth.items() if rows > counts.bound]
    assert counts.counted.codes.tolist() == sorted(above)
    assert 10 < len(above) <= 64  # the memory is made use of


def test_unique_keys_need_no_counts(tmp_path: Path) -> None:
    relation = build(tmp_path, np.random.default_rng(3).permutation(5000))
    budget = MemoryBudget("1MB")
    counts = MatchCounts.of(relation, budget)
    assert counts.unique
    assert budget.used == 0
    assert counts.matches(np.array([1, 4999])).tolist() == [1, 1]
    twice = relation.update(upserts=pa.table({"id": [7, 7], "name": ["a", "b"]}))
    later = counts.refreshed(twice)
    assert not later.unique
    assert later.matches(np.array([7, 8])).tolist() == [2, 1]
    assert later.refreshed(twice.update(deletes=[7])).unique


@pytest.mark.parametrize("rows", [0, 1])
def test_the_smallest_relations(tmp_path: Path, rows: int) -> None:
    relation = build(tmp_path, pa.array([5] * rows, pa.int64()))
    counts = MatchCounts.of(relation, MemoryBudget("1MB"))
    assert counts.unique
    assert counts.matches(np.array([5])).tolist() == [rows]


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    first=st.lists(st.integers(0, 90), max_size=400),
    updates=st.lists(
        st.tuples(st.lists(st.integers(0, 120), max_size=60), st.lists(st.integers(0, 120), max_size=10)), max_size=4
    ),
    memory=st.sampled_from([SMALL, SMALL + 640, 10**6]),
    store=st.booleans(),
)
def test_updates_leave_the_counts_right(
    first: list[int], updates: list[tuple[list[int], list[int]]], memory: int, store: bool
) -> None:
    with scratch_folder() as folder:
        relation = build(folder, pa.array(first, pa.int64()), page_bytes=512)
        budget = MemoryBudget(memory)
        counts = MatchCounts.of(relation, budget, store=store)
        for upserts, deletes in updates:
            rows = pa.table(
                {"id": pa.array(upserts, pa.int64()), "name": pa.array(["new"] * len(upserts), pa.string())}
            )
            relation = relation.update(upserts=rows, deletes=pa.array(deletes, pa.int64()))
            counts = counts.refreshed(relation, store=store)
            assert counts.version == relation.version
            check(counts, grouped(relation), most_key=130)
            assert budget.used == counts.counted.nbytes
        fresh = MatchCounts.of(relation, MemoryBudget(10**6), store=False)
        stored = MatchCounts.of(relation, MemoryBudget(10**6))
        check(fresh, grouped(relation), most_key=130)
        check(stored, grouped(relation), most_key=130)
        assert budget.peak <= memory


def test_after_an_update_only_touched_pages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relation = build(tmp_path, np.repeat(np.arange(3000), 3))
    counts = MatchCounts.of(relation, MemoryBudget("1MB"))
    later = relation.update(upserts=pa.table({"id": [10], "name": ["x"]}), deletes=[2000])
    read: list[int] = []
    plain = RunReader.read_all

    def noted(self: RunReader, runs: Any) -> Any:
        for run in plain(self, runs):
            read.extend(run.pages.tolist())
            yield run

    monkeypatch.setattr(RunReader, "read_all", noted)
    counts = counts.refreshed(later)
    assert 0 < len(read) <= 4 < later.num_pages
    read.clear()
    check(counts, grouped(later))


def test_stored_counts_are_found_again_and_go_with_their_version(tmp_path: Path) -> None:
    relation = build(tmp_path, np.repeat(np.arange(100), 2))
    MatchCounts.of(relation, MemoryBudget("1MB"))
    first = relation.path / match_counts_name(relation.manifest)
    assert first.exists()
    written = first.stat().st_mtime_ns
    MatchCounts.of(Relation.open(relation.path), MemoryBudget("1MB"))
    assert first.stat().st_mtime_ns == written
    relation = relation.update(deletes=[3])
    counts = MatchCounts.of(relation, MemoryBudget("1MB"))  # from those of the version before
    assert counts.matches(np.array([3, 4])).tolist() == [0, 2]
    second = relation.path / match_counts_name(relation.manifest)
    relation.vacuum()
    assert second.exists()
    assert not first.exists()
    relation.verify()


def test_counts_of_a_part_are_not_taken_for_those_of_the_whole(tmp_path: Path) -> None:
    relation = build(tmp_path, np.repeat(np.arange(500), 2))
    some = relation.part(first_code=100, end_code=200)
    counts = MatchCounts.of(some, MemoryBudget("1MB"))
    assert counts.matches(np.arange(100, 200)).tolist() == [2] * 100
    assert counts.matches(np.array([499])).tolist() == [0]
    assert MatchCounts.of(relation, MemoryBudget("1MB")).matches(np.arange(500)).tolist() == [2] * 500


@pytest.mark.parametrize("damage", ["cut", "flip", "other"])
def test_damaged_counts_are_counted_again(tmp_path: Path, damage: str) -> None:
    relation = build(tmp_path, np.repeat(np.arange(100), 2))
    MatchCounts.of(relation, MemoryBudget("1MB"))
    path = relation.path / match_counts_name(relation.manifest)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        place = content.index((2).to_bytes(8, "little") * 8)  # among the counts
        content[place] ^= 0xFF
    path.write_bytes({"cut": content[:50], "flip": content, "other": b"no Arrow at all"}[damage])
    counts = MatchCounts.of(relation, MemoryBudget("1MB"))
    assert counts.matches(np.arange(100)).tolist() == [2] * 100
    written = path.stat().st_mtime_ns  # whole again
    MatchCounts.of(relation, MemoryBudget("1MB"))
    assert path.stat().st_mtime_ns == written


def test_more_memory_than_before_counts_again(tmp_path: Path) -> None:
    relation = build(tmp_path, np.repeat(np.arange(500), np.arange(500) % 7 + 1))
    assert not MatchCounts.of(relation, MemoryBudget(SMALL)).exact
    assert MatchCounts.of(relation, MemoryBudget("1MB")).exact
    path = relation.path / match_counts_name(relation.manifest)
    exact = path.read_bytes()
    small = MatchCounts.of(relation, MemoryBudget(SMALL))
    check(small, grouped(relation))
    assert small.counted.codes.size <= 64
    assert path.read_bytes() == exact  # more precise counts are not replaced
    half = MatchCounts.of(relation, MemoryBudget(300 * 64))  # from those that are exact, without the least frequent
    check(half, grouped(relation))
    assert 200 < half.counted.codes.size <= 300


def test_strings_and_several_columns_are_counted_by_their_codes(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", "y", "x", None, "x"], "b": [1, 1, 1, 1, 2]})
    relation = Relation.build(table, tmp_path / "r", key=["a", "b"])
    counts = MatchCounts.of(relation, MemoryBudget("1MB"))
    batch = pa.record_batch({"k": ["x", "x", "y", None, "z"], "n": [1, 2, 1, 1, 1]})
    part = StreamPart.of(batch, ["k", "n"], relation.codec, counts)
    assert part.matches is not None
    assert part.matches.tolist() == [2, 1, 1, 0, 0]
    left = StreamPart.of(batch, ["k", "n"], relation.codec, counts, number=3, least_results=1)
    assert left.matches is not None
    assert left.matches.tolist() == [2, 1, 1, 1, 1]
    assert left.number == 3
    with pytest.raises(ColumnNotFound, match="no column 'm'"):
        StreamPart.of(batch, ["m"], relation.codec, counts)


@pytest.mark.parametrize(("keys", "memory", "exact"), [(900, "1MB", True), (3000, SMALL, False), (12, SMALL, True)])
def test_plain_parquet_is_counted_too(tmp_path: Path, keys: int, memory: int | str, exact: bool) -> None:
    rng = np.random.default_rng(4)
    rows = 20_000
    ids = pa.array(rng.zipf(1.3, rows) % keys, mask=rng.random(rows) < 0.01)
    pq.write_table(pa.table({"id": ids, "other": np.arange(rows)}), tmp_path / "r.parquet", row_group_size=3000)
    relation = ParquetRelation.open(tmp_path / "r.parquet")
    counts = MatchCounts.of(relation, MemoryBudget(memory), on=["id"])
    truth = grouped(relation)
    assert counts.exact == exact
    check(counts, truth)
    assert sum(truth.values()) == rows - ids.null_count
    assert counts.slack <= 4 * rows / 64
    with pytest.raises(InvalidArgument, match="on is empty"):
        MatchCounts.of(relation, MemoryBudget(memory))
    with pytest.raises(ColumnNotFound, match="no column 'nope'"):
        MatchCounts.of(relation, MemoryBudget(memory), on=["nope"])


def test_counting_takes_no_more_than_is_charged(tmp_path: Path) -> None:
    """Beyond the buffers of pages, a megabyte twice for these small relations, and what Arrow decodes."""
    slots, keys = 100_000, np.random.default_rng(6).permutation(95_000)
    relation = build(tmp_path, np.concatenate([keys, keys[:1000]]), page_bytes=1 << 16)
    later = relation.update(upserts=pa.table({"id": np.arange(92_000, 96_000), "name": ["x"] * 4000}))
    pq.write_table(pa.table({"id": np.concatenate([keys] * 3)}), tmp_path / "r.parquet", row_group_size=20_000)
    scattered = ParquetRelation.open(tmp_path / "r.parquet")
    older = count_clustered(relation, slots)
    assert older.codes.size == 95_000
    for count, buffers in (
        (lambda: count_clustered(relation, slots), 3 << 20),
        (lambda: count_anew(later, relation.version, older, slots), 3 << 20),
        (lambda: count_scattered(scattered, ["id"], slots), 3 << 20),
    ):
        count()
        tracemalloc.start()
        try:
            counted = count()
            assert counted is not None
            taken = tracemalloc.get_traced_memory()[1] + older.nbytes
        finally:
            tracemalloc.stop()
        assert taken <= slots * SLOT_BYTES + buffers


def test_the_average_of_unlisted_keys_is_that_of_the_last_count(tmp_path: Path) -> None:
    rows = np.array([50] * 20 + [4] * 500)
    relation = build(tmp_path, np.repeat(np.arange(520), rows))
    counts = MatchCounts.of(relation, MemoryBudget(SMALL))
    assert counts.bound == 4
    assert Counter(counts.matches(np.arange(520)).tolist()) == {50: 20, 4: 500}


def test_too_little_memory_is_refused(tmp_path: Path) -> None:
    relation = build(tmp_path, [1])
    with pytest.raises(BudgetError, match=f"got {LEAST_BYTES - 1} bytes; they need at least {LEAST_BYTES}"):
        MatchCounts.of(relation, MemoryBudget(LEAST_BYTES - 1))
