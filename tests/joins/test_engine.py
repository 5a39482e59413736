"""EngineJoin: it has a cache where that is faster, as large as is fastest, and none where it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream import Relation
from semistream.joins.engine import EngineJoin
from semistream.relation import SimulatedDisk
from tests.oracle import batch_join, multiset

ROWS, BATCH = 40_000, 20_000
SCHEMA = pa.schema([("s", pa.int64()), ("at", pa.int64())])


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table({"k": range(ROWS), "name": [f"row {i}" for i in range(ROWS)], "n": range(ROWS)})


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("engine") / "r"
    return Relation.build(table, path, key="k", page_bytes=4096)


def batch(hot: int, share: float, seed: int) -> pa.RecordBatch:
    """Tuples of which ``share`` ask for one of ``hot`` keys, the others for any."""
    generator = np.random.default_rng(seed)
    keys = np.where(
        generator.random(BATCH) < share, generator.integers(0, hot, BATCH) * 17, generator.integers(0, ROWS, BATCH)
    )
    return pa.record_batch([pa.array(keys), pa.array(np.arange(BATCH))], schema=SCHEMA)


def engine(relation: Relation, memory: str = "500kB", *, transfer_s: float = 1e-3, **options: float) -> EngineJoin:
    disk = SimulatedDisk(seek_s=0.008, transfer_s=transfer_s)
    return EngineJoin(relation, SCHEMA, on={"s": "k"}, memory=memory, disk=disk, **options)


def test_a_slow_disk_and_a_skewed_stream_get_a_cache(relation: Relation, table: pa.Table) -> None:
    with engine(relation) as join:
        for seed in range(6):
            pushed = batch(50, 0.9, seed)
            found = pa.Table.from_batches([*join.push(pushed), *join.flush()], join.schema)
            expected = batch_join(pa.table(pushed), table, {"s": "k"}, "inner", ["name", "n"])
            assert multiset(found) == multiset(expected)
        assert join.cached_rows >= 50
        assert join.stats.cache_hits > 4 * BATCH
        assert join.stats.peak_bytes <= 500_000


@pytest.mark.parametrize(
    ("share", "transfer_s"), [(0.0, 1e-3), (0.9, 1e-9)], ids=["no key comes again", "all of R passes at once"]
)
def test_there_is_none_where_it_is_not_worth_it(relation: Relation, share: float, transfer_s: float) -> None:
    memory = "500kB" if share == 0 else "3MB"
    keys = np.random.default_rng(1).permutation(ROWS)[:BATCH]
    distinct = pa.record_batch([pa.array(keys), pa.array(np.arange(BATCH))], schema=SCHEMA)
    disk = SimulatedDisk(seek_s=0.008 if share == 0 else 0, transfer_s=transfer_s)
    with EngineJoin(relation, SCHEMA, on={"s": "k"}, memory=memory, disk=disk) as join:
        for seed in range(3):
            list(join.push(batch(50, share, seed) if share else distinct))
        list(join.flush())
        assert join.cache_share == 0
        assert join.stats.cache_hits == 0


def test_a_cache_that_answers_nothing_any_more_is_let_go(relation: Relation) -> None:
    with engine(relation) as join:
        for seed in range(4):
            list(join.push(batch(50, 0.9, seed)))
        assert join.cached_rows >= 50
        for seed in range(30):
            list(join.push(batch(1, 0.0, 100 + seed)))
        list(join.flush())
        assert join.cache_share == 0


def test_the_cache_is_as_large_as_is_fastest(relation: Relation) -> None:
    """Few hot keys need little of the memory: what is more serves the tuples that wait."""
    shares = {}
    for hot in (20, 2_000):
        with engine(relation, "1MB") as join:
            for seed in range(30):
                list(join.push(batch(hot, 0.8, seed)))
            list(join.flush())
            shares[hot] = join.cache_share
            assert join.cached_rows >= 20
    assert 0 < shares[20] < 0.25 < shares[2_000]


def test_a_share_that_was_given_stays(relation: Relation) -> None:
    with engine(relation, cache_share=0.5) as join:
        for seed in range(10):
            list(join.push(batch(20, 0.6, seed)))
        assert join.cache_share == 0.5


def test_too_small_a_memory_goes_without(relation: Relation, table: pa.Table) -> None:
    with engine(relation, "90kB") as join:
        found = []
        for seed in range(2):
            found += [*join.push(batch(50, 0.9, seed))]
        found += [*join.flush()]
        assert join.cache_share == 0
        assert sum(part.num_rows for part in found) == 2 * BATCH
