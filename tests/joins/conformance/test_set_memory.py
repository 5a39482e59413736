"""The budget of a running join grows and shrinks (SSIJ IV-C): results stay exact, and the new limit holds."""

from __future__ import annotations

from contextlib import nullcontext

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from semistream import AdaptiveMeshJoin, MemoryBudget, MeshJoin, SemiStreamJoin
from semistream.errors import BudgetError, BudgetExceeded
from tests.joins.cases import Case, cases
from tests.joins.conformance.operators import Maker, every_operator, every_operator_with
from tests.joins.conformance.test_conformance import plain_case
from tests.oracle import multiset

extras = st.lists(st.sampled_from([0, 1, 3000, 40_000, 2_000_000, -1]), min_size=1, max_size=5)


@pytest.mark.slow
@every_operator_with(examples=15, case=cases(), extras=extras, steps=st.integers(0, 2), ordered=st.booleans())
def test_any_sequence_of_budgets_is_exact_and_each_holds(
    maker: Maker, case: Case, extras: list[int], steps: int, ordered: bool
) -> None:
    """An ``extra`` is what the budget has beyond the least; with -1 it is refused."""
    with case.built() as relation:
        least = maker.least_memory(relation, case, ordered=ordered)
        results = []
        with maker.make(relation, case, least + 10_000, ordered=ordered) as operator:
            for i, batch in enumerate(case.batches):
                results += operator.push(batch)
                for _ in range(steps):
                    results += operator.step()
                extra = extras[i % len(extras)]
                limit = operator.budget.limit if extra < 0 else least + extra
                with pytest.raises(BudgetError, match=str(least)) if extra < 0 else nullcontext():
                    results.extend(operator.set_memory(least + extra))
                assert operator.budget.limit == operator.stats.budget_bytes == limit
                assert operator.budget.used <= operator.budget.peak == operator.stats.peak_bytes <= limit
                assert operator.stats.rows_waiting == 0
            results += operator.flush()
            assert operator.stats.peak_bytes <= operator.budget.limit
            table = pa.Table.from_batches(results, operator.schema)
    assert multiset(table) == case.expected_rows


@every_operator
def test_too_little_memory_is_refused_and_the_join_goes_on_as_before(maker: Maker) -> None:
    case = plain_case("left", rows=600, stream_rows=500)
    with case.built() as relation:
        least = maker.least_memory(relation, case)
        with maker.make(relation, case, least + 5000) as operator:
            charged = _besides_caches(operator)
            results = []
            for batch in case.batches:
                results += operator.push(batch)
                for memory in (least - 1, 1):
                    with pytest.raises(BudgetError, match=str(least)):
                        results.extend(operator.set_memory(memory))
                assert _besides_caches(operator) == charged
            with pytest.raises(BudgetError, match="give an int of bytes"):
                operator.set_memory("much")
            results += operator.flush()
            assert operator.budget.limit == least + 5000
            table = pa.Table.from_batches(results, operator.schema)
    assert multiset(table) == case.expected_rows


def _besides_caches(operator: SemiStreamJoin) -> dict[str, int]:
    return {name: held for name, held in operator.budget.by_name.items() if name != "cached pages"}


@pytest.mark.slow
@every_operator
def test_memory_that_is_given_is_used(maker: Maker) -> None:
    """Tuples wait longer with more memory: there is room for more of them."""
    case = plain_case(rows=600, stream_rows=3000)
    waited = []
    with case.built() as relation, maker.make(relation, case, maker.least_memory(relation, case)) as operator:
        for memory in ("3MB", operator.budget.limit, "3MB"):
            list(operator.set_memory(memory))
            for batch in case.batches:
                list(operator.push(batch))
            waited.append(operator.stats.rows_waiting)
            list(operator.flush())
        tunes_itself = isinstance(operator, AdaptiveMeshJoin)
    assert tunes_itself or waited[1] <= waited[0] == waited[2]
    assert waited[1] < 3000


def test_a_part_cannot_grow_beyond_the_whole_budget() -> None:
    whole = MemoryBudget(1_000_000)
    case = plain_case(rows=600, stream_rows=500)
    with case.built() as relation:
        operator = MeshJoin(relation, case.stream_schema, on=case.on, memory=whole.part(500_000))
        results = [result for batch in case.batches for result in operator.push(batch)]
        with pytest.raises(BudgetExceeded, match="cannot grow to 1100000 bytes with 500000 free"):
            results.extend(operator.set_memory(1_100_000))
        results.extend(operator.set_memory(900_000))
        assert whole.used == operator.budget.used <= 900_000
        results.extend(operator.flush())
        operator.close()
    assert multiset(pa.Table.from_batches(results)) == case.expected_rows
