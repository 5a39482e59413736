"""SweepJoin: a tuple waits until the sweep has passed its pages, and no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import Relation
from semistream.budget import MemoryBudget
from semistream.joins.join_facts import JoinFacts
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation import SimulatedDisk
from tests.joins.conformance.operators import TrimmingSweepJoin, least_memory
from tests.oracle import batch_join, multiset

MANY_ROWS = 40_000

KEYS = 1200
Sides = tuple[Relation, pa.Table]


def keys_of(numbers: Any, kind: str) -> pa.Array:
    """Integers in the order of their codes, or strings in the order of a hash."""
    return pa.array(numbers, pa.int64()) if kind == "int" else pa.array([f"k{number}" for number in numbers])


@pytest.fixture(scope="module")
def relations(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Sides]:
    """R with a row for most keys, and the given number of rows, which may span pages, for some keys."""
    made = {}
    for kind in ("int", "string"):
        for copies in (1, 300):
            generator = np.random.default_rng(copies)
            once = np.flatnonzero(generator.random(KEYS) < 0.8)
            keys = np.concatenate([once, np.repeat(generator.integers(0, KEYS, 10), copies)])
            table = pa.table({"key": keys_of(keys, kind), "row": np.arange(keys.size)})
            path = tmp_path_factory.mktemp("sweep") / "r"
            made[kind, copies] = Relation.build(table, path, key="key", page_bytes=2048), table
    return made


def stream(seed: int, rows: int, kind: str) -> pa.RecordBatch:
    """Keys of R and others, before, among and behind them, some of them null."""
    generator = np.random.default_rng(seed)
    keys = keys_of(generator.integers(-20, KEYS + 20, rows), kind)
    key = pc.if_else(pa.array(generator.random(rows) < 0.02), pa.scalar(None, keys.type), keys)
    note = pa.array([f"{n % 97}" if n % 5 else None for n in range(rows)])
    return pa.record_batch({"key": key, "seq": np.arange(rows), "note": note, "flag": pc.is_null(note)})


def least_for(r: Relation, schema: pa.Schema, how: str) -> int:
    return least_memory(lambda memory: SweepJoin(r, schema, on="key", how=how, memory=memory))


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    kind=st.sampled_from(["int", "string"]),
    copies=st.sampled_from([1, 300]),
    how=st.sampled_from(["inner", "left", "semi", "anti"]),
    columns=st.sampled_from([["key"], ["key", "seq"], ["seq", "note", "key", "flag"]]),
    spare=st.integers(0, 20_000),
    pushed=st.lists(st.integers(1, 400), min_size=3, max_size=6),
    steps=st.integers(0, 2),
)
def test_tuples_that_go_before_their_level_have_met_all_their_rows(
    relations: dict[tuple[str, int], Sides],
    kind: str,
    copies: int,
    how: str,
    columns: list[str],
    spare: int,
    pushed: list[int],
    steps: int,
) -> None:
    r, table = relations[kind, copies]
    s = stream(spare, sum(pushed), kind).select(columns)
    results: list[pa.RecordBatch] = []
    memory = least_for(r, s.schema, how) + spare
    with TrimmingSweepJoin(r, s.schema, on="key", how=how, memory=memory) as operator:
        done = 0
        for rows in pushed:
            results += operator.push(s.slice(done, rows))
            done += rows
            for _ in range(steps):
                results += operator.step()
        results += operator.flush()
        stats = operator.stats
    expected = batch_join(pa.Table.from_batches([s]), table, {"key": "key"}, how, ["row"])
    assert multiset(pa.Table.from_batches(results, operator.schema)) == multiset(expected)
    assert stats.rows_done == stats.matched + stats.unmatched == s.num_rows
    assert stats.expiries == stats.inserts


@pytest.fixture(scope="module")
def of_many_pages(tmp_path_factory: pytest.TempPathFactory) -> Relation:
    path: Path = tmp_path_factory.mktemp("sweep") / "r"
    columns = {f"c{i}": np.arange(MANY_ROWS) for i in range(14)}
    return Relation.build(pa.table({"key": range(MANY_ROWS), **columns}), path, key="key", page_bytes=4096)


@pytest.mark.parametrize("pushed", [100, 1000, 7000, 100_000])
def test_levels_are_nearly_as_large_however_many_tuples_come_at_a_time(of_many_pages: Relation, pushed: int) -> None:
    s = pa.record_batch({"key": np.random.default_rng(1).integers(MANY_ROWS, size=5 * MANY_ROWS)})
    memory = of_many_pages.nbytes // 5
    with SweepJoin(of_many_pages, s.schema, on="key", memory=memory) as operator:
        for begin in range(0, s.num_rows, pushed):
            for _ in operator.push(s.slice(begin, pushed)):
                pass
        assert operator.stats.rows_in == s.num_rows
        level_rows = SweepJoin.model(JoinFacts(of_many_pages, operator.spec), MemoryBudget(memory)).level_rows
        assert (
            0.7 * level_rows < s.num_rows / operator.stats.packets <= 1.02 * level_rows
        )  # some are yet to be taken in


def test_nearly_twice_as_many_tuples_come_in_a_pass_as_can_wait(of_many_pages: Relation) -> None:
    r = of_many_pages
    s = pa.record_batch({"key": np.random.default_rng(1).integers(MANY_ROWS, size=10 * MANY_ROWS)})
    memory, most_waiting = r.nbytes // 10, 0
    with SweepJoin(r, s.schema, on="key", memory=memory, disk=SimulatedDisk(seek_s=0, transfer_s=1)) as operator:
        for begin in range(0, s.num_rows, 1000):
            for _ in operator.push(s.slice(begin, 1000)):
                pass
            most_waiting = max(most_waiting, operator.stats.rows_waiting)
        passes = operator.stats.pages_read / r.num_pages
        assert most_waiting < 0.1 * s.num_rows
        assert 1.5 < s.num_rows / passes / most_waiting < 2


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(rows=st.integers(1, 1500), nulls=st.sampled_from([0.0, 0.003, 0.03, 1.0]), extra=st.sampled_from([0, 400, 9000]))
def test_bytes_charged_for_nested_values_are_released(
    relations: dict[tuple[str, int], Sides], rows: int, nulls: float, extra: int
) -> None:
    """Their bytes depend on whether any of the values admitted together is null."""
    r, _ = relations["int", 1]
    generator = np.random.default_rng(rows)
    lists = [None if generator.random() < nulls else [1] * generator.integers(0, 60) for _ in range(rows)]
    tuples = pa.record_batch({"key": np.arange(rows), "values": pa.array(lists, pa.list_(pa.int32()))})
    memory = least_for(r, tuples.schema, "inner") + extra
    with SweepJoin(r, tuples.schema, on="key", memory=memory) as join:
        for _ in join.push(tuples):
            pass
        for _ in join.flush():
            pass
        assert "stream tuples" not in join.budget.by_name
