"""FrontStage: hot keys are answered from memory, the cache follows the stream and R's versions, and fits its share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream import HybridJoin, MeshJoin, Relation, SemiStreamJoin, join
from semistream.errors import InvalidArgument
from semistream.joins.cache.front_stage import FrontStage
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import SimulatedDisk
from tests.joins.conformance.operators import least_memory
from tests.oracle import batch_join, multiset

ROWS = 20_000
SCHEMA = pa.schema([("s", pa.int64()), ("at", pa.int64())])
every_join = pytest.mark.parametrize("wraps", [MeshJoin, SweepJoin, HybridJoin])


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table({"k": range(ROWS), "name": [f"row {i}" for i in range(ROWS)], "n": range(ROWS)})


@pytest.fixture
def relation(table: pa.Table, tmp_path: Path) -> Relation:
    return Relation.build(table, tmp_path / "r", key="k", page_bytes=4096)


def skewed(rows: int, hot: np.ndarray, *, share: float = 0.9, seed: int = 0) -> pa.RecordBatch:
    """A batch with hot keys in ``share`` of its tuples and any keys in the rest."""
    generator = np.random.default_rng(seed)
    keys = np.where(
        generator.random(rows) < share,
        generator.choice(hot if hot.size else [0], rows),
        generator.integers(0, ROWS, rows),
    )
    return pa.record_batch([pa.array(keys), pa.array(np.arange(rows))], schema=SCHEMA)


def front(relation: Relation, wraps: type[SemiStreamJoin], **options: object) -> FrontStage:
    arguments = {"on": {"s": "k"}, "memory": "2MB", "cache_share": 0.5, "disk": "buffered", **options}
    return FrontStage(relation, SCHEMA, wraps=wraps, **arguments)  # type: ignore[arg-type]


def drain(join: SemiStreamJoin, batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([*join.push(batch), *join.flush()], join.schema)


@every_join
def test_hot_keys_are_answered_from_memory(relation: Relation, table: pa.Table, wraps: type[SemiStreamJoin]) -> None:
    hot = np.arange(0, ROWS, 100)
    with front(relation, wraps) as join:
        for seed in range(4):
            batch = skewed(4000, hot, seed=seed)
            assert multiset(drain(join, batch)) == multiset(
                batch_join(pa.table(batch), table, {"s": "k"}, "inner", ["name", "n"])
            )
        before = join.stats.cache_hits
        drain(join, skewed(4000, hot, seed=9))
        assert join.stats.cache_hits - before > 0.85 * 4000
        assert join.cached_rows >= hot.size
        assert join.stats.peak_bytes <= 2_000_000


def test_the_hit_rate_recovers_when_the_hot_keys_change(relation: Relation) -> None:
    """The cache has room for the hot keys of one time, not for those of all times."""
    with front(relation, MeshJoin, memory="1MB", cache_share=0.35) as join:
        rates = []
        for phase in range(3):
            hot = np.arange(phase, ROWS, 10)
            for seed in range(12):
                before = join.stats.cache_hits
                drain(join, skewed(4000, hot, seed=100 * phase + seed))
                rates.append((join.stats.cache_hits - before) / 4000)
        for phase in range(3):
            first, last = rates[12 * phase], rates[12 * phase + 11]
            assert last > 0.6
            if phase:
                assert first < 0.3
        assert join.cached_rows < 3 * (ROWS // 10)


@every_join
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_cached_keys_with_several_rows_and_hashed_codes(tmp_path: Path, wraps: type[SemiStreamJoin], how: str) -> None:
    keys = [f"key {i % 700}" for i in range(2000)]
    table = pa.table({"k": keys, "v": pa.array(range(2000))})
    relation = Relation.build(table, tmp_path / "s", key="k", page_bytes=4096)
    stream = pa.record_batch({"s": [f"key {i % 40}" if i % 9 else "nobody" for i in range(3000)], "at": range(3000)})
    with FrontStage(
        relation, stream.schema, wraps=wraps, on={"s": "k"}, how=how, memory="2MB", cache_share=0.5
    ) as join:
        expected = multiset(batch_join(pa.table(stream), table, {"s": "k"}, how, ["v"]))
        for _ in range(4):
            assert multiset(drain(join, stream)) == expected
        assert join.stats.cache_hits > 0
        assert join.stats.matched + join.stats.unmatched == 12_000


@every_join
def test_a_new_version_drops_the_keys_it_changed_and_no_others(
    relation: Relation, table: pa.Table, wraps: type[SemiStreamJoin]
) -> None:
    hot = np.arange(0, ROWS, 100)
    with front(relation, wraps) as join:
        for seed in range(4):
            drain(join, skewed(4000, hot, seed=seed))
        cached = join.cached_rows
        changed = [0, 500, 900]
        updates = pa.table({"k": changed[:2], "name": ["new", "newer"], "n": [-1, -2]})
        newer = relation.update(upserts=updates, deletes=changed[2:])
        join.refresh(newer)
        batch = skewed(4000, hot, seed=77)
        expected = pa.concat_tables([table.filter(pa.array([i not in changed for i in range(ROWS)])), updates])
        assert multiset(drain(join, batch)) == multiset(
            batch_join(pa.table(batch), expected, {"s": "k"}, "inner", ["name", "n"])
        )
        assert join.cached_rows >= cached - len(changed)
        assert join.stats.versions == {1: 16_000, 2: 4000}


def test_under_skew_it_reads_less_than_the_join_alone(table: pa.Table, tmp_path: Path) -> None:
    """FRONT 4: with as much memory CMESHJOIN serves a skewed stream with fewer reads, on the papers' disk."""
    wide = table.append_column("filler", pa.array([b"." * 200] * ROWS))
    relation = Relation.build(wide, tmp_path / "wide", key="k", page_bytes=4096)
    hot = np.arange(0, ROWS, 200)
    times = {}
    for name in ("front", "alone"):
        disk = SimulatedDisk(seek_s=0.008, transfer_s=0.0001)
        memory = relation.nbytes // 10
        make = FrontStage if name == "front" else MeshJoin
        with make(relation, SCHEMA, on={"s": "k"}, memory=memory, disk=disk) as join:
            for seed in range(20):
                list(join.push(skewed(5000, hot, seed=seed)))
            list(join.flush())
        times[name] = disk.now_s
    assert times["front"] < 0.6 * times["alone"]


def test_what_it_cannot_serve_is_refused(relation: Relation) -> None:
    with pytest.raises(InvalidArgument, match="mesh"):
        FrontStage(relation, SCHEMA, where="s.s < r.k", memory="2MB")
    with pytest.raises(InvalidArgument, match="cache_share is 2"):
        FrontStage(relation, SCHEMA, on={"s": "k"}, memory="2MB", cache_share=2)


def test_another_budget_while_it_runs(relation: Relation, table: pa.Table) -> None:
    with front(relation, MeshJoin) as join:
        for memory in ("2MB", "600kB", "3MB"):
            assert list(join.set_memory(memory)) == []
            batch = skewed(3000, np.arange(0, ROWS, 100))
            results = drain(join, batch)
            assert multiset(results) == multiset(batch_join(pa.table(batch), table, {"s": "k"}, "inner", ["name", "n"]))
            assert join.budget.used <= join.budget.limit
        assert join.stats.rows_done == 9000


@pytest.mark.parametrize("how", ["inner", "left"])
def test_what_is_not_cached_can_be_given_back(relation: Relation, table: pa.Table, how: str) -> None:
    hot = np.arange(0, ROWS, 100)
    with front(relation, SweepJoin, how=how) as join:
        cold = list(join.answer(skewed(1000, hot)))
        assert [answered for _, answered in cold] == [False] * len(cold)
        assert not join.holds(skewed(1000, hot)).any()
        assert sum(rows.num_rows for rows, _ in cold) == 1000
        for seed in range(4):
            drain(join, skewed(4000, hot, seed=seed))
        before, batch = join.stats.pages_read, skewed(4000, hot, seed=9)
        held = join.holds(batch)
        assert join.stats.rows_in == 4 * 4000, "nothing has entered"
        given = list(join.answer(batch))
        results = pa.Table.from_batches([rows for rows, answered in given if answered], join.schema)
        missed = pa.Table.from_batches([rows for rows, answered in given if not answered], SCHEMA)
        assert results.num_rows > 0.8 * batch.num_rows
        assert multiset(missed) == multiset(pa.table(batch.filter(pa.array(~held)))), "it was said which are held"
        assert (join.stats.pages_read, join.stats.rows_waiting) == (before, 0)
        again = pa.Table.from_batches(
            [each for rows in missed.to_batches() for each in join.push(rows)] + list(join.flush()), join.schema
        )
        oracle = batch_join(pa.table(batch), table, {"s": "k"}, how, ["name", "n"])
        assert multiset(pa.concat_tables([results, again])) == multiset(oracle)
        assert join.stats.rows_in == join.stats.matched + join.stats.unmatched == 5 * 4000


@pytest.mark.parametrize("columns", [1, 20, 60, 120])
def test_tuples_of_any_width_fit_every_memory(tmp_path: Path, columns: int) -> None:
    """Missed tuples fit in the staging area, however wide tuples are and however few of them are cached."""
    rows, generator = 100_000, np.random.default_rng(0)
    keys = np.arange(rows)
    relation = Relation.build(pa.table({"k": keys, "v": keys}), tmp_path / "r", key="k")
    wanted = generator.integers(0, rows * 6 // 5, 10_000)
    doubles = pa.array(generator.random(wanted.size))
    tuples = pa.table({"s": wanted} | {f"c{i}": doubles for i in range(columns)})
    expected = {"inner": wanted < rows, "left": wanted >= 0, "semi": wanted < rows, "anti": wanted >= rows}
    for memory in ("1MB", "2MB", "8MB", "32MB"):
        for how, kept in expected.items():
            joined = join(tuples, relation, on={"s": "k"}, how=how, memory=memory).read_all()
            assert np.array_equal(np.sort(joined["s"]), np.sort(wanted[kept]))


@every_join
def test_a_cache_in_a_small_memory_costs_the_join_behind_it_few_pages(
    relation: Relation, wraps: type[SemiStreamJoin]
) -> None:
    """The cache shares what the join can do without, not what it needs to hold tuples at all."""
    pages = {}
    stream = skewed(10_000, np.arange(1), share=0.0)
    least = least_memory(lambda nbytes: wraps(relation, SCHEMA, on={"s": "k"}, memory=nbytes, disk="buffered"))
    for kind, options in ((wraps, {}), (FrontStage, {"wraps": wraps})):
        with kind(relation, SCHEMA, on={"s": "k"}, memory=13 * least // 10, disk="buffered", **options) as join:
            assert drain(join, stream).num_rows == 10_000
            pages[kind] = join.stats.pages_read
    assert pages[FrontStage] < 3 * pages[wraps]
