"""Joins with a relation in column groups: they read the groups that they need, and no others."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from semistream import MeshJoin, Relation, SemiStreamingIndexJoin, join
from semistream.joins.cache.front_stage import FrontStage
from tests.joins.cases import Case, folder_of
from tests.joins.conformance.checks import run
from tests.joins.conformance.operators import Maker, every_operator
from tests.oracle import batch_join, multiset

ROWS, COLUMNS = 500, 36
MEMORY = "4MB"


def wide_table(shift: int = 0) -> pa.Table:
    numbers = {f"c{i}": pa.array([n * i + shift for n in range(ROWS)], pa.int64()) for i in range(COLUMNS)}
    text = pa.array([None if n % 11 == 0 else f"text {n % 50} {shift}" for n in range(ROWS)])
    return pa.table({"k": [n % 400 for n in range(ROWS)], **numbers, "text": text})


@cache
def wide_case(how: str = "inner") -> Case:
    stream = pa.table({"s": [(n * 7) % 450 for n in range(300)], "at": range(300)})
    batches = tuple(stream.combine_chunks().to_batches(max_chunksize=120))
    return Case(wide_table(), ("k",), batches, stream.schema, {"s": "k"}, how, 8192)


def expected(case: Case, columns: list[str], table: pa.Table | None = None) -> Any:
    return multiset(batch_join(case.stream, table or case.relation, case.on, case.how, columns))


@pytest.mark.slow
@every_operator
@pytest.mark.parametrize("columns", [["c3"], ["text", "c35", "c0"], []], ids=str)
def test_a_projection_reads_its_groups_only(maker: Maker, columns: list[str]) -> None:
    case = wide_case()
    with case.built() as relation:
        narrowed = relation.reading(columns)
        assert narrowed.segments < relation.segments
        with maker.make(relation, case, MEMORY, columns=columns) as operator:
            assert operator.relation is narrowed
            assert multiset(run(operator, case.batches)) == expected(case, columns)
            stats = operator.stats
            assert stats.bytes_read * relation.segments <= stats.pages_read * relation.nbytes
            assert stats.bytes_read <= stats.requests * narrowed.nbytes
            assert stats.bytes_read > 0
        assert maker.least_memory(relation, case, columns=columns) < maker.least_memory(relation, case)


@every_operator
@pytest.mark.parametrize("how", ["semi", "anti"])
def test_semi_and_anti_joins_read_the_key_only(maker: Maker, how: str) -> None:
    case = wide_case(how)
    with case.built() as relation, maker.make(relation, case, MEMORY) as operator:
        assert operator.relation.groups == (0,)
        assert multiset(run(operator, case.batches)) == case.expected_rows


@every_operator
def test_all_columns_are_those_of_the_batch_join(maker: Maker) -> None:
    case = wide_case("left")
    with case.built() as relation, maker.make(relation, case, MEMORY) as operator:
        assert operator.relation is relation
        assert multiset(run(operator, case.batches)) == case.expected_rows
        assert operator.stats.peak_bytes <= operator.budget.limit


def test_a_scan_reads_the_bytes_of_its_groups_and_no_more() -> None:
    case = wide_case()
    with (
        case.built() as relation,
        MeshJoin(relation, case.stream_schema, on=case.on, columns=["c5"], memory=MEMORY) as j,
    ):
        list(j.push(case.batches[0]))
        list(j.flush())
        assert j.stats.bytes_read == relation.reading(["c5"]).nbytes
        assert j.stats.pages_read == 2 * relation.num_pages


def test_columns_of_a_condition_are_read_too() -> None:
    case = wide_case()
    arguments = {"on": case.on, "where": "s.at >= r.c9", "columns": ["text"], "memory": MEMORY}
    with case.built() as relation:
        for kind in (MeshJoin, SemiStreamingIndexJoin, FrontStage):
            with kind(relation, case.stream_schema, **arguments) as operator:
                assert operator.relation is relation.reading(["text", "c9"])
                rows = multiset(run(operator, case.batches))
            joined = batch_join(case.stream, case.relation, case.on, "inner", ["text", "c9"]).to_pylist()
            assert sum(rows.values()) == sum(row["at"] >= row["c9"] for row in joined) > 0


@pytest.mark.slow
@every_operator
def test_versions_with_the_same_and_with_other_groups_follow_each_other(maker: Maker) -> None:
    case = wide_case()
    path = folder_of(owner := Maker(MeshJoin)) / "r"
    relation = Relation.build(case.relation, path, key="k", page_bytes=8192)
    columns = ["c3", "text"]
    with maker.make(relation, case, MEMORY, columns=columns) as operator:
        assert multiset(run(operator, case.batches)) == expected(case, columns)
        updated = relation.update(upserts=wide_table(5).slice(0, 300))
        operator.refresh(updated)
        now = pa.table(updated.scan())
        assert multiset(run(operator, case.batches)) == expected(case, columns, now)
        assert operator.relation is updated.reading(columns)
        for groups in ([["c1", "c3", "c2"], ["text", "c0"]], [case.relation.column_names], [["text", "c3"]], None):
            rebuilt = Relation.build(
                wide_table(9), path, key="k", page_bytes=8192, column_groups=groups, overwrite=True
            )
            operator.refresh(rebuilt)
            assert multiset(run(operator, case.batches)) == expected(case, columns, wide_table(9))
            assert operator.stats.versions[rebuilt.version] == case.stream.num_rows
    del owner


def test_a_share_of_memory_is_one_of_all_columns() -> None:
    case = wide_case()
    with case.built() as relation:
        with MeshJoin(relation, case.stream_schema, on=case.on, columns=["c5"], memory="300%") as operator:
            assert operator.budget.limit == 3 * relation.nbytes
            list(operator.set_memory("200%"))
            assert operator.budget.limit == 2 * relation.nbytes
        joined = join(case.batches, relation, on=case.on, columns=["c5"], memory="300%")
        assert multiset(joined.read_all()) == expected(case, ["c5"])
