"""Every operator passes every check: exact, within its budget, on any input."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from semistream import SemiStreamJoin
from semistream.errors import BudgetError, InvalidArgument
from semistream.joins.condition.spec import JoinSpec
from semistream.tuning.candidates import OPERATORS as OPERATOR_CLASSES
from tests.joins.cases import Case, cases
from tests.joins.conformance import checks
from tests.joins.conformance.operators import Maker, every_operator, every_operator_with, least_memory


@every_operator_with(examples=40, case=cases(), extra=st.sampled_from([0, 1, 5000, 100_000, 50_000_000]))
def test_results_equal_the_batch_join(maker: Maker, case: Case, extra: int) -> None:
    with case.built() as relation:
        checks.check_equals_the_batch_join(maker, case, relation, maker.least_memory(relation, case) + extra)


@pytest.mark.slow
@every_operator_with(examples=16, case=cases(), extra=st.sampled_from([0, 777, 20_000, 3_000_000]))
def test_the_budget_is_never_exceeded(maker: Maker, case: Case, extra: int) -> None:
    with case.built() as relation:
        checks.check_holds_the_budget(maker, case, relation, maker.least_memory(relation, case) + extra)


@pytest.mark.slow
@every_operator_with(examples=16, case=cases(), steps=st.lists(st.integers(0, 4), max_size=4))
def test_any_interleaving_of_pushes_and_steps_is_exact(maker: Maker, case: Case, steps: list[int]) -> None:
    with case.built() as relation:
        checks.check_any_interleaving_of_steps(maker, case, relation, steps)


@pytest.mark.slow
@every_operator_with(examples=12, case=cases())
def test_the_other_checks(maker: Maker, case: Case) -> None:
    with case.built() as relation:
        checks.check_stats_add_up(maker, case, relation)
        checks.check_works_after_flush(maker, case, relation)
        checks.check_is_deterministic(maker, case, relation)
        checks.check_leaves_its_input_alone(maker, case, relation)


@cache
def plain_case(how: str = "inner", rows: int = 4000, stream_rows: int = 3000) -> Case:
    schema = pa.schema([("k", pa.int64()), ("name", pa.string())])
    keys, names = [i % 2400 for i in range(rows)], [f"n{i}" for i in range(rows)]
    relation = pa.table({"k": keys, "name": names}, schema=schema)
    stream = pa.table({"s": [(i * 7) % 2500 for i in range(stream_rows)], "at": range(stream_rows)})
    batches = tuple(stream.combine_chunks().to_batches(max_chunksize=700))
    return Case(relation, ("k",), batches, stream.schema, {"s": "k"}, how, 2048)


@every_operator
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_the_least_budget_works_and_one_byte_less_is_refused(maker: Maker, how: str) -> None:
    case = plain_case(how, rows=600, stream_rows=500)
    with case.built() as relation:
        checks.check_refuses_less_than_the_least(maker, case, relation)


@every_operator
def test_results_must_be_consumed(maker: Maker) -> None:
    case = plain_case()
    with case.built() as relation:
        checks.check_wants_its_results_consumed(maker, case, relation)


@every_operator
def test_closing_half_way_leaves_no_thread_and_no_file(maker: Maker) -> None:
    case = plain_case()
    with case.built() as relation:
        checks.check_leaves_no_thread_and_no_file(maker, case, relation)


@pytest.mark.slow
@every_operator
def test_one_key_everywhere_comes_out_in_bounded_batches(maker: Maker) -> None:
    relation = pa.table({"k": [5] * 700, "name": ["x" * (i % 50) for i in range(700)]})
    stream = pa.table({"s": [5] * 400, "at": range(400)})
    case = Case(relation, ("k",), tuple(stream.to_batches()), stream.schema, {"s": "k"}, "inner", 1024)
    with case.built() as relation_on_disk:
        memory = maker.least_memory(relation_on_disk, case) + 10_000
        with maker.make(relation_on_disk, case, memory) as operator:
            sizes = [b.num_rows for batch in case.batches for b in operator.push(batch)]
            sizes += [b.num_rows for b in operator.flush()]
            assert sum(sizes) == 700 * 400
            assert max(sizes) < 2000
            assert operator.stats.peak_bytes <= memory


@cache
def nested_case() -> Case:
    """Lists and texts of 1 and of 2000."""
    sizes = [2000 if i % 50 == 0 else 1 for i in range(300)]
    relation = pa.table({"k": range(300), "v": [list(range(n)) for n in sizes], "t": [{"a": "x" * n} for n in sizes]})
    stream = pa.table({"s": [i % 50 * 6 for i in range(120)] + [0] * 80, "w": [[1] * n for n in sizes[:200]]})
    return Case(relation, ("k",), tuple(stream.to_batches(max_chunksize=30)), stream.schema, {"s": "k"}, "left", 4096)


@every_operator
def test_nested_values_of_very_different_sizes_are_charged_in_full(maker: Maker) -> None:
    case = nested_case()
    with case.built() as built:
        checks.check_holds_the_budget(maker, case, built, maker.least_memory(built, case) + 300_000)
        checks.check_equals_the_batch_join(maker, case, built, "2MB")


@pytest.mark.parametrize("kind", OPERATOR_CLASSES.values(), ids=list(OPERATOR_CLASSES))
@pytest.mark.parametrize("options", [{}, {"ordered": True, "deadline_s": 5.0}], ids=["plain", "ordered, deadlines"])
@pytest.mark.parametrize("rows", [600, 0])
def test_a_join_is_checked_without_an_operator_as_by_making_one(
    kind: type[SemiStreamJoin], options: dict[str, Any], rows: int
) -> None:
    case = plain_case(rows=rows, stream_rows=500)
    with case.built() as relation:
        spec = JoinSpec.of(relation, case.stream_schema, on=case.on)
        least = least_memory(lambda memory: kind(relation, spec, memory=memory, **options))
        kind.check(relation, spec, least, options)
        with pytest.raises(BudgetError) as refused:
            kind.check(relation, spec, least - 1, options)
        assert refused.value.least_bytes == least
        with pytest.raises(InvalidArgument, match="disk is 'tape'"):
            kind.check(relation, spec, least, {"disk": "tape"})
        with pytest.raises(InvalidArgument, match="has no option 'speed'"):
            kind.check(relation, spec, least, {"speed": 11})
