"""The front stage over plain Parquet: a key is cached with all its rows, wherever they lie, and the join is exact."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import (
    AdaptiveMeshJoin,
    CachedMeshJoin,
    FrontStage,
    HybridJoin,
    MeshJoin,
    ParquetRelation,
    SemiStreamJoin,
    join,
)
from semistream.errors import InvalidArgument
from tests.joins.cases import MEMORY_BACKED, Case, cases
from tests.joins.conformance.operators import least_memory
from tests.joins.conformance.parquet_files import write
from tests.joins.conformance.test_parquet_relation import laid_out
from tests.oracle import batch_join, multiset, sql_join

MEMORY = 16_000_000
KEYS, COPIES = 2000, 3
SCHEMA = pa.schema([("s", pa.int64()), ("at", pa.int64())])
WITH_ROWS = Counter[tuple[Any, ...]]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Three rows of each key, far from each other."""
    keys = np.concatenate([np.random.default_rng(i).permutation(KEYS) for i in range(COPIES)])
    return pa.table({"k": keys, "name": [f"row {i}" for i in range(keys.size)], "n": np.arange(keys.size)})


@pytest.fixture
def relation(table: pa.Table, tmp_path: Path) -> ParquetRelation:
    return ParquetRelation.open(write(table, tmp_path / "r.parquet", row_group_size=300), page_bytes=4096)


def skewed(rows: int, hot: np.ndarray, *, seed: int = 0) -> pa.RecordBatch:
    """A batch with hot keys in nine tenths of its tuples and any keys in the rest."""
    generator = np.random.default_rng(seed)
    keys = np.where(generator.random(rows) < 0.9, generator.choice(hot, rows), generator.integers(0, KEYS, rows))
    return pa.record_batch([pa.array(keys), pa.array(np.arange(rows))], schema=SCHEMA)


def drain(operator: SemiStreamJoin, batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([*operator.push(batch), *operator.flush()], operator.schema)


def hits_of(operator: SemiStreamJoin, batch: pa.RecordBatch) -> float:
    before = operator.stats.cache_hits
    drain(operator, batch)
    return (operator.stats.cache_hits - before) / batch.num_rows


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    cases(),
    st.data(),
    st.sampled_from([0, 60_000, 150_000, 1_000_000, MEMORY]),
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.sampled_from([None, 7]),
)
def test_results_are_those_of_duckdb_again_and_again(
    case: Case, data: st.DataObject, more: int, steps: list[int], rows_per_step: int | None
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY_BACKED) as folder:
        relation = data.draw(laid_out(case, Path(folder)))

        def make(memory: int) -> SemiStreamJoin:
            return CachedMeshJoin(
                relation,
                case.stream_schema,
                on=case.on,
                how=case.how,
                memory=memory,
                options={"rows_per_step": rows_per_step},
            )

        memory = least_memory(make) + more
        with make(memory) as operator:
            results = []
            for turn in range(5):
                for i, batch in enumerate(case.batches):
                    results += operator.push(batch)
                    for _ in range(steps[(turn + i) % len(steps)]):
                        results += operator.step()
            results += operator.flush()
            assert operator.stats.peak_bytes <= memory
            assert operator.stats.rows_in == operator.stats.rows_done == 5 * case.stream.num_rows
            assert operator.stats.matched == 5 * case.matched
        expected = Counter({row: 5 * count for row, count in case.expected_rows.items()})
        assert multiset(pa.Table.from_batches(results, operator.schema)) == expected


KEY_KINDS: dict[str, Callable[[np.ndarray], dict[str, pa.Array]]] = {
    "int": lambda keys: {"a": pa.array(keys)},
    "string": lambda keys: {"a": pa.array([f"key {key}" for key in keys.tolist()])},
    "composite": lambda keys: {"a": pa.array(keys % 7), "b": pa.array([f"b{key // 7}" for key in keys.tolist()])},
}


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(sorted(KEY_KINDS)),
    how=st.sampled_from(["inner", "left", "semi", "anti"]),
    seed=st.integers(0, 2**32),
    copies=st.integers(1, 6),
    group_rows=st.sampled_from([9, 50, 400]),
    more=st.sampled_from([40_000, 100_000, 500_000, 4_000_000]),
    acts=st.lists(st.sampled_from(["push", "push", "step", "flush", "memory", "refresh"]), min_size=8, max_size=25),
    where=st.sampled_from([None, "s.x < r.n"]),
    wraps=st.sampled_from([MeshJoin, AdaptiveMeshJoin]),
)
def test_any_history_of_a_skewed_stream_is_exact(
    kind: str,
    how: str,
    seed: int,
    copies: int,
    group_rows: int,
    more: int,
    acts: list[str],
    where: str | None,
    wraps: type[MeshJoin],
) -> None:
    """Duplicate keys over many row groups, keys without rows, null keys, other versions of R and other budgets."""
    generator = np.random.default_rng(seed)

    def nulls(columns: dict[str, pa.Array], rows: int) -> dict[str, pa.Array]:
        gone = pa.array(generator.random(rows) < 0.05)
        return {name: pa.compute.if_else(gone, pa.scalar(None, c.type), c) for name, c in columns.items()}

    def relation_table() -> pa.Table:
        keys = generator.permutation(np.repeat(np.arange(60), copies))
        return pa.table(
            nulls(KEY_KINDS[kind](keys), keys.size)
            | {"n": generator.integers(0, 100, keys.size), "v": [f"v{i}" * (i % 9) for i in range(keys.size)]}
        )

    def stream_batch(rows: int) -> pa.RecordBatch:
        keys = np.minimum(generator.zipf(1.3, rows), 80) - 1 + 10  # the last of them have no rows
        columns = {f"s_{name}": column for name, column in nulls(KEY_KINDS[kind](keys), rows).items()}
        return pa.record_batch(columns | {"x": pa.array(generator.integers(0, 100, rows))})

    on = {f"s_{name}": name for name in KEY_KINDS[kind](np.zeros(1, np.int64))}
    with tempfile.TemporaryDirectory(dir=MEMORY_BACKED) as folder:
        table = relation_table()
        path = write(table, Path(folder) / "0.parquet", row_group_size=group_rows)
        relation = ParquetRelation.open(path, page_bytes=4096)
        schema = stream_batch(1).schema

        def make(memory: int) -> FrontStage:
            return FrontStage(
                relation, schema, on=on, where=where, how=how, memory=memory, cache_share=0.5, wraps=wraps
            )

        limit = least_memory(make) + more
        results: list[pa.RecordBatch] = []
        pushed: list[tuple[pa.RecordBatch, pa.Table]] = []
        with make(limit) as operator:
            for number, act in enumerate(acts):
                if act == "push":
                    batch = stream_batch(int(generator.integers(1, 400)))
                    pushed.append((batch, table))
                    results += operator.push(batch)
                elif act == "step":
                    results += operator.step()
                elif act == "flush":
                    results += operator.flush()
                elif act == "memory":
                    results += operator.set_memory(limit + int(generator.integers(0, 200_000)))
                else:
                    table = relation_table()
                    newer = write(table, Path(folder) / f"{number}.parquet", row_group_size=group_rows)
                    operator.refresh(ParquetRelation.open(newer, page_bytes=4096))
                assert operator.budget.used <= operator.budget.limit
            results += operator.flush()
            assert operator.stats.peak_bytes <= limit + 200_000
        expected: WITH_ROWS = Counter()
        for batch, joined_with in pushed:
            expected += _joined(pa.table(batch), joined_with, on, where, how)
        assert multiset(pa.Table.from_batches(results, operator.schema)) == expected


def _joined(stream: pa.Table, table: pa.Table, on: dict[str, str], where: str | None, how: str) -> WITH_ROWS:
    condition = " AND ".join([f's."{left}" = r."{right}"' for left, right in on.items()] + ([where] if where else []))
    return multiset(sql_join(stream, table, condition, how, ["n", "v"] if how in ("inner", "left") else []))


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_hot_keys_with_rows_in_many_row_groups_are_answered_from_memory(
    relation: ParquetRelation, table: pa.Table, how: str
) -> None:
    hot = np.arange(0, KEYS, 40)
    with CachedMeshJoin(relation, SCHEMA, on={"s": "k"}, how=how, memory=MEMORY) as operator:
        for seed in range(4):
            batch = skewed(2000, hot, seed=seed)
            expected = batch_join(pa.table(batch), table, {"s": "k"}, how, ["name", "n"])
            assert multiset(drain(operator, batch)) == multiset(expected)
        read = operator.stats.pages_read
        only_hot = pa.record_batch([pa.array(hot), pa.array(hot)], schema=SCHEMA)
        expected = batch_join(pa.table(only_hot), table, {"s": "k"}, how, ["name", "n"])
        assert hits_of(operator, only_hot) == 1
        assert multiset(drain(operator, only_hot)) == multiset(expected)
        assert operator.stats.pages_read == read
        assert operator.cached_rows >= COPIES * hot.size
        assert operator.stats.peak_bytes <= MEMORY


def test_a_hot_key_is_cached_when_its_first_tuple_is_done(relation: ParquetRelation) -> None:
    hot = pa.record_batch([pa.array([7] * 50), pa.array(range(50))], schema=SCHEMA)
    with CachedMeshJoin(relation, SCHEMA, on={"s": "k"}, memory=MEMORY) as operator:
        for _ in range(relation.num_pages - 1):
            list(operator.push(hot.slice(0, 5)))
            list(operator.step())
        assert (operator.stats.cache_hits, operator.cached_rows) == (0, 0)
        list(operator.push(hot))
        list(operator.step())
        list(operator.push(hot))
        list(operator.push(hot))
        assert (operator.stats.cache_hits, operator.cached_rows) == (50, COPIES)


def test_the_hit_rate_recovers_when_the_hot_keys_change(table: pa.Table, relation: ParquetRelation) -> None:
    """The cache has room for the hot keys of one time, not for those of all times."""
    with CachedMeshJoin(relation, SCHEMA, on={"s": "k"}, memory=MEMORY, cache_share=120_000 / MEMORY) as operator:
        rates = []
        for phase in range(3):
            hot = np.arange(phase, KEYS, 10)
            rates.append([hits_of(operator, skewed(2000, hot, seed=100 * phase + turn)) for turn in range(8)])
        for phase in range(3):
            assert rates[phase][-1] > 0.6
            assert phase == 0 or rates[phase][0] < 0.3
        assert operator.cached_rows < 2 * COPIES * (KEYS // 10)
        batch = skewed(1000, hot)
        expected = batch_join(pa.table(batch), table, {"s": "k"}, "inner", ["name", "n"])
        assert multiset(drain(operator, batch)) == multiset(expected)
        assert operator.stats.peak_bytes <= MEMORY


def test_hot_keys_without_rows_do_not_keep_others_out(relation: ParquetRelation) -> None:
    nobody = np.arange(KEYS, 20 * KEYS)
    share = 150_000 / MEMORY
    with CachedMeshJoin(relation, SCHEMA, on={"s": "k"}, how="anti", memory=MEMORY, cache_share=share) as operator:
        for turn in range(3):
            keys = np.repeat(nobody[turn::40], 5)
            asked = pa.record_batch([pa.array(keys), pa.array(keys)], schema=SCHEMA)
            assert drain(operator, asked).num_rows == keys.size
        rates = [hits_of(operator, skewed(2000, np.arange(0, KEYS, 100), seed=turn)) for turn in range(8)]
        assert rates[-1] > 0.8


def test_another_version_drops_the_cache_as_a_whole(table: pa.Table, tmp_path: Path) -> None:
    relation = ParquetRelation.open(write(table, tmp_path / "r.parquet", row_group_size=300), page_bytes=4096)
    hot = np.arange(0, KEYS, 40)
    with CachedMeshJoin(relation, SCHEMA, on={"s": "k"}, memory=MEMORY) as operator:
        for seed in range(3):
            drain(operator, skewed(2000, hot, seed=seed))
        assert operator.cached_rows
        list(operator.push(skewed(2000, hot + 1)))  # keys are followed, and their rows are of the old version
        list(operator.step())
        changed = table.slice(0, 2 * KEYS).set_column(2, "n", pa.array(-np.arange(2 * KEYS)))
        newer = write(changed, tmp_path / "newer.parquet", row_group_size=500)
        operator.refresh(ParquetRelation.open(newer, page_bytes=4096))
        list(operator.flush())
        for seed in range(3):
            batch = skewed(2000, np.concatenate([hot, hot + 1]), seed=seed)
            before = operator.stats.cache_hits
            expected = batch_join(pa.table(batch), changed, {"s": "k"}, "inner", ["name", "n"])
            assert multiset(drain(operator, batch)) == multiset(expected)
            assert (operator.stats.cache_hits > before) == (seed > 0)


def test_another_budget_keeps_what_is_cached(relation: ParquetRelation, table: pa.Table) -> None:
    hot = np.arange(0, KEYS, 100)
    with CachedMeshJoin(relation, SCHEMA, on={"s": "k"}, memory=MEMORY) as operator:
        for seed in range(3):
            drain(operator, skewed(2000, hot, seed=seed))
        for memory in (8_000_000, MEMORY):
            assert list(operator.set_memory(memory)) == []
            assert operator.cached_rows >= COPIES * hot.size
            batch = skewed(2000, hot, seed=memory)
            expected = batch_join(pa.table(batch), table, {"s": "k"}, "inner", ["name", "n"])
            assert multiset(drain(operator, batch)) == multiset(expected)


def test_it_goes_with_order_and_by_name(relation: ParquetRelation, table: pa.Table) -> None:
    stream = pa.Table.from_batches([skewed(2000, np.arange(0, KEYS, 100), seed=seed) for seed in range(3)])
    expected = batch_join(stream, table, {"s": "k"}, "left", ["name", "n"])
    results = join(stream, relation, on={"s": "k"}, how="left", memory=MEMORY, operator="cmesh", ordered=True)
    found = results.read_all()
    at = found.column("at").to_pylist()
    assert [now for now, before in zip(at, [None, *at], strict=False) if now != before] == stream["at"].to_pylist()
    assert multiset(found) == multiset(expected)
    assert results.stats.cache_hits > 0


def test_what_it_cannot_serve_is_refused(relation: ParquetRelation) -> None:
    with pytest.raises(
        InvalidArgument, match=r"'cmesh' joins on equality with columns of the relation, but .*MeshJoin"
    ):
        CachedMeshJoin(relation, SCHEMA, where="s.s < r.k", memory=MEMORY)
    with pytest.raises(InvalidArgument, match=r"'front_stage' needs pages .* Build a relation"):
        FrontStage(relation, SCHEMA, on={"s": "k"}, wraps=HybridJoin, memory=MEMORY)
