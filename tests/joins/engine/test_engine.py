"""EngineJoin: it has a cache of the fastest size, or none where a cache does not pay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream import Relation, join
from semistream.costs.machine import Machine, OperatorCosts
from semistream.joins.engine.operator import EngineJoin
from semistream.relation import DiskCosts, SimulatedDisk
from tests.oracle import batch_join, multiset

ROWS, BATCH = 40_000, 20_000
SCHEMA = pa.schema([("s", pa.int64()), ("at", pa.int64())])


@pytest.fixture(scope="module")
def table() -> pa.Table:
    wide = {f"c{i}": range(i, ROWS + i) for i in range(10)}
    return pa.table({"k": range(ROWS), "name": [f"row {i}" for i in range(ROWS)], "n": range(ROWS), **wide})


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("engine") / "r"
    return Relation.build(table, path, key="k", page_bytes=4096)


def batch(hot: int, share: float, seed: int) -> pa.RecordBatch:
    """Tuples with one of ``hot`` keys in a ``share`` of them and any keys in the rest."""
    generator = np.random.default_rng(seed)
    keys = np.where(
        generator.random(BATCH) < share, generator.integers(0, hot, BATCH) * 17, generator.integers(0, ROWS, BATCH)
    )
    return pa.record_batch([pa.array(keys), pa.array(np.arange(BATCH))], schema=SCHEMA)


def engine(relation: Relation, memory: str = "1.2MB", *, transfer_s: float = 1e-3, **options: Any) -> EngineJoin:
    disk = SimulatedDisk(seek_s=0.008, transfer_s=transfer_s)
    return EngineJoin(relation, SCHEMA, on={"s": "k"}, memory=memory, disk=disk, **options)


def test_a_slow_disk_and_a_skewed_stream_get_a_cache(relation: Relation, table: pa.Table) -> None:
    with engine(relation) as join:
        for seed in range(6):
            pushed = batch(50, 0.9, seed)
            found = pa.Table.from_batches([*join.push(pushed), *join.flush()], join.schema)
            expected = batch_join(pa.table(pushed), table, {"s": "k"}, "inner", table.column_names[1:])
            assert multiset(found) == multiset(expected)
        assert join.cached_rows >= 50
        assert join.stats.cache_hits > 4 * BATCH
        assert join.stats.peak_bytes <= 1_200_000


def test_there_is_none_if_no_key_comes_again(relation: Relation) -> None:
    keys = np.random.default_rng(1).permutation(ROWS)[:BATCH]
    with engine(relation) as join:
        for _ in range(3):
            list(join.push(pa.record_batch([pa.array(keys), pa.array(np.arange(BATCH))], schema=SCHEMA)))
        list(join.flush())
        assert join.cache_share == 0
        assert join.stats.cache_hits == 0


@pytest.mark.parametrize(("hit_s", "cached"), [(1e-9, True), (1e-6, False)])
def test_there_is_none_where_a_look_up_takes_longer_than_it_saves(
    relation: Relation, hit_s: float, cached: bool
) -> None:
    """All of R passes at once, so that the processor's time is all that counts."""
    costs = OperatorCosts(tuple_s=100e-9, hit_s=hit_s)
    machine = Machine("fast", DiskCosts(0, 1e-15), operators={"engine": costs})
    with engine(relation, transfer_s=1e-9, machine=machine) as join:
        for seed in range(3):
            list(join.push(batch(50, 0.9, seed)))
        list(join.flush())
        assert (join.cache_share > 0) == (join.stats.cache_hits > 0) == cached


def test_a_cache_that_answers_nothing_any_more_is_let_go(relation: Relation) -> None:
    with engine(relation) as join:
        for seed in range(4):
            list(join.push(batch(50, 0.9, seed)))
        assert join.cached_rows >= 50
        for seed in range(30):
            list(join.push(batch(1, 0.0, 100 + seed)))
        list(join.flush())
        list(join.push(batch(1, 0.0, 200)))  # nothing waits, so that a change costs nothing
        assert join.cache_share <= 1 / 16


def test_the_cache_is_as_large_as_is_fastest(relation: Relation) -> None:
    """Few hot keys need little memory: the rest serves the waiting tuples."""
    shares = {}
    for hot in (20, 300):
        with engine(relation, "1.2MB") as join:
            for seed in range(30):
                list(join.push(batch(hot, 0.8, seed)))
            list(join.flush())
            shares[hot] = join.cache_share
            assert join.cached_rows >= 20
    assert 0 < shares[20] < shares[300]


def test_a_share_that_was_given_stays(relation: Relation) -> None:
    with engine(relation, cache_share=0.5) as join:
        for seed in range(10):
            list(join.push(batch(20, 0.6, seed)))
        assert join.cache_share == 0.5


def test_too_small_a_memory_goes_without(relation: Relation, table: pa.Table) -> None:
    with engine(relation, "300kB") as join:
        found = []
        for seed in range(2):
            found += [*join.push(batch(50, 0.9, seed))]
        found += [*join.flush()]
        assert join.cache_share == 0
        assert sum(part.num_rows for part in found) == 2 * BATCH


@pytest.mark.parametrize("how", ["inner", "semi", "anti"])
def test_a_cache_that_would_take_longer_to_fill_than_the_stream_lasts_is_not_begun(tmp_path: Path, how: str) -> None:
    """All keys come equally often: a cache of nearly all of R pays only after millions of tuples."""
    keys = np.arange(100_000) * 4
    wide = {f"c{i}": np.random.default_rng(i).random(keys.size) for i in range(8)}
    relation = Relation.build(pa.table({"k": keys, **wide}), tmp_path / "r", key="k")
    stream = pa.table({"s": np.random.default_rng(9).choice(keys, 600_000), "at": np.arange(600_000)})
    pages = {}
    for operator in ("sweep", "engine", "auto"):
        joined = join(stream, relation, on={"s": "k"}, how=how, operator=operator, memory="60%")
        assert sum(found.num_rows for found in joined) == (0 if how == "anti" else stream.num_rows)
        pages[operator] = joined.stats.pages_read
    assert max(pages.values()) <= 1.1 * pages["sweep"]
