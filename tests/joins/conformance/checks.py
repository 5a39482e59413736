"""The checks of the conformance suite, as functions: each raises AssertionError on an operator that breaks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from semistream import Relation, SemiStreamJoin
from semistream.errors import BudgetError, JoinInProgress
from tests.joins.cases import Case
from tests.joins.conformance.operators import Maker
from tests.oracle import multiset


def run(operator: SemiStreamJoin, batches: tuple[pa.RecordBatch, ...]) -> pa.Table:
    results = [result for batch in batches for result in operator.push(batch)]
    results.extend(operator.flush())
    return pa.Table.from_batches(results, operator.schema)


def check_equals_the_batch_join(maker: Maker, case: Case, relation: Relation, memory: int | str) -> None:
    with maker.make(relation, case, memory) as operator:
        results = run(operator, case.batches)
    assert results.column_names == case.expected.column_names
    assert multiset(results) == case.expected_rows


def check_holds_the_budget(maker: Maker, case: Case, relation: Relation, memory: int) -> None:
    with maker.make(relation, case, memory) as operator:
        for batch in case.batches:
            for _ in _watched(operator, operator.push(batch)):
                pass
        for _ in _watched(operator, operator.flush()):
            pass
        assert operator.budget.limit == memory
        assert operator.stats.peak_bytes <= memory
        held = operator.budget.by_name
        assert not {name for name in held if name in ("output", "stream tuples", "merged packets")}, held


def _watched(operator: SemiStreamJoin, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in results:
        # Results are charged until the consumer asks for more, at no less than their real size.
        assert batch.nbytes <= operator.budget.by_name.get("output", 0)
        assert operator.budget.used <= operator.budget.limit
        yield batch


def check_refuses_less_than_the_least(maker: Maker, case: Case, relation: Relation) -> None:
    least = maker.least_memory(relation, case)
    with pytest.raises(BudgetError, match=str(least)):
        maker.make(relation, case, least - 1)
    check_equals_the_batch_join(maker, case, relation, least)


def check_leaves_its_input_alone(maker: Maker, case: Case, relation: Relation) -> None:
    before = [pa.RecordBatch.from_pylist(batch.to_pylist(), schema=batch.schema) for batch in case.batches]
    with maker.make(relation, case, "4MB") as operator:
        run(operator, case.batches)
    for batch, copy in zip(case.batches, before, strict=True):
        assert multiset(pa.table(batch)) == multiset(pa.table(copy))
        assert batch.num_rows == copy.num_rows


def check_is_deterministic(maker: Maker, case: Case, relation: Relation) -> None:
    runs = []
    for _ in range(2):
        with maker.make(relation, case, "1MB") as operator:
            runs.append((run(operator, case.batches), operator.stats.as_dict(), list(operator.stats.trace)))
    assert str(runs[0][0].to_pylist()) == str(runs[1][0].to_pylist())  # as text: NaN is not equal to itself
    assert runs[0][1:] == runs[1][1:]


def check_stats_add_up(maker: Maker, case: Case, relation: Relation) -> None:
    with maker.make(relation, case, "1MB") as operator:
        results = run(operator, case.batches)
        stats = operator.stats
    assert stats.rows_in == stats.rows_done == case.stream.num_rows
    assert stats.rows_waiting == 0
    assert stats.matched == case.matched
    assert stats.unmatched == case.stream.num_rows - case.matched
    assert stats.outputs == results.num_rows
    assert stats.inserts == stats.expiries
    assert stats.pages_read == stats.pages_seek + stats.pages_sequential
    assert stats.requests <= stats.pages_read
    if stats.rows_in and relation.num_pages:
        assert stats.steps > 0
        assert stats.probes > 0 or stats.matched == 0


def check_works_after_flush(maker: Maker, case: Case, relation: Relation) -> None:
    with maker.make(relation, case, "1MB") as operator:
        for _ in range(3):
            assert multiset(run(operator, case.batches)) == case.expected_rows
        assert list(operator.step()) == []
        assert list(operator.flush()) == []


def check_any_interleaving_of_steps(maker: Maker, case: Case, relation: Relation, steps: list[int]) -> None:
    with maker.make(relation, case, "1MB") as operator:
        results = []
        for i, batch in enumerate(case.batches):
            results.extend(operator.push(batch))
            for _ in range(steps[i % len(steps)] if steps else 0):
                results.extend(operator.step())
        results.extend(operator.flush())
        table = pa.Table.from_batches(results, operator.schema)
    assert multiset(table) == case.expected_rows


def check_wants_its_results_consumed(maker: Maker, case: Case, relation: Relation) -> None:
    with maker.make(relation, case, "1MB") as operator:
        operator.push(case.batches[0])
        with pytest.raises(JoinInProgress, match="push"):
            operator.step()


def _open_files() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def check_leaves_no_thread_and_no_file(maker: Maker, case: Case, relation: Relation) -> None:
    threads, files = set(threading.enumerate()), _open_files()
    operator = maker.make(relation, case, "1MB")
    for batch in case.batches:
        list(operator.push(batch))
    list(operator.step())
    operator.close()
    assert set(threading.enumerate()) == threads
    assert _open_files() == files
