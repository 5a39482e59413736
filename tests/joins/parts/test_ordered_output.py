"""ordered=True: the results of every operator come in the order of the stream (MESH 3.4), within the same budget."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import strategies as st

import semistream
from semistream import MeshJoin, Relation, SemiStreamJoin
from semistream.errors import BudgetError, InvalidArgument
from tests.joins.cases import Case, cases
from tests.joins.conformance.operators import Maker, every_operator, every_operator_with
from tests.joins.conformance.test_conformance import plain_case
from tests.oracle import multiset

KINDS = ["inner", "left", "semi", "anti"]


def numbered(case: Case, how: str | None = None) -> Case:
    """The same, with the number of each row in the stream."""
    schema = case.stream_schema.append(pa.field("number", pa.int64()))
    batches, first = [], 0
    for batch in case.batches:
        numbers = pa.array(np.arange(first, first + batch.num_rows))
        batches.append(pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema))
        first += batch.num_rows
    return Case(case.relation, case.key, tuple(batches), schema, case.on, how or case.how, case.page_bytes)


@cache
def crowded_case() -> Case:
    """One key of R has thousands of rows."""
    relation = pa.table({"k": [5] * 3000 + list(range(100, 200)), "name": ["x" * (i % 50) for i in range(3100)]})
    stream = pa.table({"s": [150, 5, 150, 151, 5, 5, 7, 152] * 3})
    batches = tuple(stream.to_batches(max_chunksize=20))
    return numbered(Case(relation, ("k",), batches, stream.schema, {"s": "k"}, "left", 1024))


@cache
def numbered_case(how: str, rows: int, stream_rows: int) -> Case:
    """A plain case with numbers."""
    return numbered(plain_case(how, rows, stream_rows))


@cache
def one_batch_case(how: str) -> Case:
    """The whole stream comes at once."""
    case = numbered(plain_case(how, rows=900, stream_rows=2000))
    (whole,) = case.stream.combine_chunks().to_batches()
    return Case(case.relation, case.key, (whole,), case.stream_schema, case.on, how, 1024)


def run_watched(operator: SemiStreamJoin, case: Case) -> pa.Table:
    """Return all results; check that they are charged until consumed, and that nothing waits after a push."""
    results = []
    for batch in case.batches:
        for result in operator.push(batch):
            charged = operator.budget.by_name
            assert result.nbytes <= charged.get("output", 0) + charged.get("ordered output", 0)
            assert operator.budget.used <= operator.budget.limit
            results.append(result)
        assert operator.stats.rows_waiting == 0
        assert not {"output", "ordered output", "stream tuples"} & operator.budget.by_name.keys()
    assert list(operator.flush()) == []
    return pa.Table.from_batches(results, operator.schema)


def check_ordered(maker: Maker, case: Case, relation: Relation, memory: int | str, **options: Any) -> SemiStreamJoin:
    with maker.make(relation, case, memory, ordered=True, **options) as operator:
        results = run_watched(operator, case)
    assert results.column_names == case.expected.column_names
    assert multiset(results) == case.expected_rows
    assert bool(np.all(np.diff(results.column("number").to_numpy()) >= 0))
    stats = operator.stats
    assert stats.rows_in == stats.rows_done == case.stream.num_rows
    assert (stats.matched, stats.unmatched) == (case.matched, case.stream.num_rows - case.matched)
    assert stats.outputs == results.num_rows
    assert stats.inserts == stats.expiries
    assert stats.peak_bytes <= operator.budget.limit == stats.budget_bytes
    return operator


@pytest.mark.slow
@every_operator_with(examples=8, case=cases(), extra=st.sampled_from([0, 1, 700, 9000, 3_000_000]))
def test_results_come_in_the_order_of_the_stream(maker: Maker, case: Case, extra: int) -> None:
    case = numbered(case)
    with case.built() as relation:
        check_ordered(maker, case, relation, maker.least_memory(relation, case, ordered=True) + extra)


@pytest.mark.slow
@every_operator
@pytest.mark.parametrize("how", KINDS)
def test_large_batches_at_the_least_memory(maker: Maker, how: str) -> None:
    """Far more rows than can wait at once, and more results than can be held: groups are made smaller."""
    case = one_batch_case(how)
    with case.built() as relation:
        least = maker.least_memory(relation, case, ordered=True)
        check_ordered(maker, case, relation, least)
        with pytest.raises(BudgetError, match=str(least)):
            maker.make(relation, case, least - 1, ordered=True)


@pytest.mark.slow
@every_operator
def test_a_tuple_with_more_results_than_fit_comes_out_in_its_place(maker: Maker) -> None:
    case = crowded_case()
    with case.built() as built:
        memory = maker.least_memory(built, case, ordered=True) + 20_000
        operator = check_ordered(maker, case, built, memory)
        assert operator.stats.outputs > 9 * 3000


@pytest.mark.slow
@every_operator
def test_what_fits_is_joined_in_one_pass(maker: Maker) -> None:
    """No tuple is joined twice if its results can be held, and few are if groups have to become smaller."""
    case = numbered_case("inner", rows=2400, stream_rows=3000)
    with case.built() as relation:
        with maker.make(relation, case, "20MB", ordered=True) as operator:
            run_watched(operator, case)
            assert operator.stats.inserts <= 3000
        tight = check_ordered(maker, case, relation, maker.least_memory(relation, case, ordered=True))
        assert tight.stats.inserts <= 4 * 3000


def test_names_of_our_own_columns_are_refused_and_those_of_the_relation_kept(tmp_path: Any) -> None:
    relation = Relation.build(pa.table({"k": [1], "_semistream_x": [2]}), tmp_path / "r", key="k")
    schema = pa.schema([("k", pa.int64()), ("_semistream_number", pa.int64())])
    with pytest.raises(InvalidArgument, match="the column name '_semistream_number' is reserved for semistream"):
        MeshJoin(relation, schema, on="k", memory="1MB", ordered=True)
    with MeshJoin(relation, schema, on="k", memory="1MB") as operator:
        assert operator.schema.names == ["k", "_semistream_number", "_semistream_x"]


def test_join_gives_stream_order(tmp_path: Any) -> None:
    relation = Relation.build(
        pa.table({"k": np.arange(5000), "v": np.arange(5000)}), tmp_path / "r", key="k", page_bytes=1024
    )
    stream = pa.table({"k": np.random.default_rng(3).permutation(5000), "number": np.arange(5000)})
    results = semistream.join(stream.to_batches(700), relation, on="k", memory="300kB", ordered=True).read_all()
    assert results.column("number").to_pylist() == list(range(5000))
    assert pc.all(pc.equal(results.column("k"), results.column("v"))).as_py()
