"""Joins by ranges of R's key, under any steps, versions of R, budgets, order and deadlines."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from semistream.errors import BudgetError, InvalidArgument
from semistream.relation import SimulatedDisk
from tests.joins.cases import Case
from tests.joins.conformance.operators import OPERATORS, Maker, every_operator_with, every_range_operator
from tests.joins.conformance.test_versions import KEYS, KINDS, Rows, Versions, relation_rows
from tests.joins.parts.test_deadlines import DiskClock, drive
from tests.oracle import multiset, sql_join

STREAM = pa.schema([("low", pa.int64()), ("high", pa.int64()), ("number", pa.int64())])
BETWEEN = "r.k BETWEEN s.low AND s.high"
Bounds = tuple[int | None, int | None]

bounds = st.tuples(*2 * [st.one_of(st.integers(-2, KEYS + 2), st.none())])
narrow = st.builds(lambda low, width: (low, low + width), st.integers(0, KEYS), st.integers(0, 4))
actions = st.one_of(
    st.tuples(st.just("push"), st.lists(st.one_of(bounds, narrow), max_size=30)),
    st.tuples(st.just("step"), st.integers(1, 3)),
    st.tuples(st.just("update"), relation_rows),
    st.tuples(st.just("set_memory"), st.sampled_from([None, 0, 1, 3000, 2_000_000])),
)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[Versions, list[tuple[str, Any]]]:
    """Any interleaving, and the versions of R in it, built once on disk for all operators."""
    versions = Versions(draw(relation_rows))
    script = draw(st.lists(actions, max_size=12))
    for action, upserts in script:
        if action == "update":
            versions.update(upserts, [])
    return versions, script


def joined(how: str, low: int | None, high: int | None, rows: Rows) -> list[tuple[Any, ...]]:
    """Return the results of one stream tuple with one version of R, by the definition of the join."""
    partners = [row for row in rows if None not in (low, high, row[0]) and low <= row[0] <= high]
    if how in ("inner", "left"):
        return partners or ([(None, None)] if how == "left" else [])
    return [()] if bool(partners) == (how == "semi") else []


@pytest.mark.slow
@every_operator_with(examples=40, ranges=True, how=st.sampled_from(KINDS), script=scripts(), ordered=st.booleans())
def test_any_interleaving_of_pushes_steps_versions_and_budgets_is_exact(
    maker: Maker, how: str, script: tuple[Versions, list[tuple[str, Any]]], ordered: bool
) -> None:
    versions, actions = script
    case = Case(pa.table({}), ("k",), (), STREAM, {}, how)
    more = {"where": BETWEEN, "ordered": ordered}
    least = max(maker.least_memory(relation, case, **more) for relation in versions.relations)
    expected: Counter[tuple[Any, ...]] = Counter()
    results: list[pa.RecordBatch] = []
    seen = pushed = 0
    with maker.make(versions.relations[0], case, least + 5000, **more) as operator:
        for action, value in actions:
            if action == "push":
                numbers = range(pushed, pushed := pushed + len(value))
                columns = [*zip(*value, strict=True)] or [(), ()]
                arrays = [pa.array(column, pa.int64()) for column in [*columns, numbers]]
                for (low, high), number in zip(value, numbers, strict=True):
                    found = joined(how, low, high, versions.rows[seen])
                    expected.update((low, high, number, *right) for right in found)
                results += operator.push(pa.record_batch(arrays, schema=STREAM))
            elif action == "step":
                for _ in range(value):
                    results += operator.step()
            elif action == "update":
                seen += 1
                operator.refresh(versions.relations[seen])
            else:
                with pytest.raises(BudgetError) if value is None else nullcontext():
                    results.extend(operator.set_memory(1 if value is None else least + value))
            assert operator.budget.used <= operator.budget.peak <= operator.budget.limit
        results += operator.flush()
        stats = operator.stats
    table = pa.Table.from_batches(results, operator.schema)
    assert multiset(table) == expected
    assert stats.rows_in == stats.rows_done == pushed
    assert stats.inserts == stats.expiries
    assert not ordered or bool(np.all(np.diff(table["number"].to_numpy()) >= 0))


def bands(width: int) -> Case:
    """A relation of many pages and a stream of ranges that go over some of them."""
    relation = pa.table({"k": np.arange(0, 4000, 2), "v": np.arange(2000)})
    low = np.random.default_rng(width).integers(-width, 4000, 1200)
    stream = pa.table([low, low + width, np.arange(low.size)], schema=STREAM)
    return Case(relation, ("k",), tuple(stream.to_batches(max_chunksize=20)), STREAM, {}, "left", 1024)


@pytest.mark.slow
@every_range_operator
@pytest.mark.parametrize("width", [1, 150])
def test_no_range_is_late_if_the_rate_allows(maker: Maker, width: int) -> None:
    if not maker.lets_tuples_wait:
        pytest.skip("no tuple waits, so that none is late")
    case = bands(width)
    expected = sql_join(case.stream, case.relation, BETWEEN, "left", ["k", "v"])
    with case.built() as relation:
        disk = SimulatedDisk(seek_s=0.01, transfer_s=0.001)
        clock = DiskClock(disk)
        deadline_s = 1.1 * relation.num_pages * disk.costs.request_s(1024, 1)
        more = {"disk": disk, "clock": clock, "deadline_s": deadline_s, "where": BETWEEN}
        with maker.make(relation, case, "4MB", **more) as operator:
            results, most_waiting = drive(operator, clock, case.batches, gap_s=deadline_s / 15)
    assert multiset(results) == multiset(expected)
    assert (operator.stats.late, operator.stats.rows_waiting) == (0, 0)
    assert maker.options.keys() & {"rows_per_step", "input_threshold", "seed"} or most_waiting > 20


@pytest.mark.parametrize("maker", [p for p in OPERATORS if not p.values[0].takes_ranges])
def test_operators_for_equality_refuse_ranges_and_name_one_that_takes_them(maker: Maker) -> None:
    case = bands(1)
    with case.built() as relation, pytest.raises(InvalidArgument, match=r"joins on equality.*operator='mesh'"):
        maker.make(relation, case, "4MB", where=BETWEEN)
