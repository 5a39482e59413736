"""ResidentJoin: R is read once for each version, every push is answered in itself, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream
from semistream import Relation, ResidentJoin
from semistream.costs.machine import DEFAULT_MACHINE
from semistream.errors import BudgetError
from semistream.joins.condition.spec import JoinSpec
from semistream.tuning.candidates import join_tuner
from semistream.tuning.explain import workload_of

ROWS = 5_000
STREAM = pa.schema([("key", pa.int64()), ("seq", pa.int64())])


@pytest.fixture
def relation(tmp_path: Path) -> Relation:
    table = pa.table({"id": np.arange(ROWS), "name": [f"name {i}" for i in range(ROWS)]})
    return Relation.build(table, tmp_path / "r", key="id", page_bytes=4096)


def batch(keys: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys), pa.array(np.arange(keys.size))], schema=STREAM)


def rows_of(results: list[pa.RecordBatch]) -> set[tuple[int, str]]:
    return {(row["seq"], row["name"]) for result in results for row in result.to_pylist()}


def test_r_is_read_once_and_nothing_waits(relation: Relation) -> None:
    random = np.random.default_rng(1)
    with ResidentJoin(relation, STREAM, on={"key": "id"}, memory="1MB") as join:
        assert join.stats.pages_read == 0
        for rows in (1, 700, 3):
            keys = random.integers(0, 2 * ROWS, rows)
            found = rows_of(list(join.push(batch(keys))))
            assert found == {(i, f"name {key}") for i, key in enumerate(keys.tolist()) if key < ROWS}
            assert join.stats.rows_waiting == 0
        assert join.stats.pages_read == relation.num_pages
        assert join.stats.cache_hits == join.stats.rows_in == 704
        assert join.stats.peak_bytes <= join.budget.limit


def test_a_new_version_is_read_once(relation: Relation) -> None:
    with ResidentJoin(relation, STREAM, on={"key": "id"}, memory="1MB") as join:
        assert rows_of(list(join.push(batch(np.array([7]))))) == {(0, "name 7")}
        after = relation.update(pa.table({"id": [7, ROWS + 1], "name": ["seven", "new"]}))
        join.refresh(after)
        assert rows_of(list(join.push(batch(np.array([7, ROWS + 1]))))) == {(0, "seven"), (1, "new")}
        assert join.stats.pages_read == relation.num_pages + after.num_pages


def test_a_memory_too_small_for_r_is_refused_with_the_least_that_works(relation: Relation) -> None:
    with pytest.raises(BudgetError, match=r"too small for all of .* in memory") as refused:
        ResidentJoin(relation, STREAM, on={"key": "id"}, memory=relation.nbytes)
    least = refused.value.least_bytes
    assert least is not None
    assert least > relation.nbytes
    with ResidentJoin(relation, STREAM, on={"key": "id"}, memory=least) as join:
        assert len(rows_of(list(join.push(batch(np.arange(ROWS)))))) == ROWS
        assert join.stats.peak_bytes <= least


def test_a_version_that_has_outgrown_the_memory_is_refused_and_the_one_before_still_joins(relation: Relation) -> None:
    with pytest.raises(BudgetError) as refused:
        ResidentJoin(relation, STREAM, on={"key": "id"}, memory=1)
    with ResidentJoin(relation, STREAM, on={"key": "id"}, memory=refused.value.least_bytes or 0) as join:
        grown = np.arange(ROWS, 2 * ROWS)
        join.refresh(relation.update(pa.table({"id": grown, "name": [f"name {i}" for i in grown]})))
        with pytest.raises(BudgetError, match="in memory"):
            list(join.push(batch(np.array([1]))))
        assert rows_of(list(join.push(batch(np.array([1]))))) == {(0, "name 1")}


def test_ranges_of_the_key_are_found(relation: Relation) -> None:
    with ResidentJoin(relation, STREAM, where="abs(s.key - r.id) <= 1", columns=["name"], memory="2MB") as join:
        assert rows_of(list(join.push(batch(np.array([0, 40]))))) == {
            *((0, f"name {i}") for i in (0, 1)),
            *((1, f"name {i}") for i in (39, 40, 41)),
        }


def test_the_tuner_knows_it_where_all_of_r_fits_and_expects_no_wait(relation: Relation) -> None:
    spec = JoinSpec.of(relation, STREAM, on={"key": "id"})
    tuner = join_tuner(relation, spec, workload_of(relation, spec, rate=10.0), DEFAULT_MACHINE)
    expected = {choice.operator: choice for choice in tuner.choices(8 * relation.nbytes)}["resident"]
    assert (expected.disk_s, expected.median_latency_s, expected.worst_latency_s, expected.hit_rate) == (0, 0, 0, 1)
    assert "resident" not in {choice.operator for choice in tuner.choices(relation.nbytes)}


def test_it_can_be_named(relation: Relation) -> None:
    found = semistream.join(batch(np.array([3])), relation, on={"key": "id"}, operator="resident", memory="1MB")
    assert found.read_all().column("name").to_pylist() == ["name 3"]
