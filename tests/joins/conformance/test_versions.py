"""R changes under a running join: every stream tuple sees one version of it as a whole (SSIJ IV-E)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from semistream import MeshJoin, Relation, SemiStreamJoin
from semistream.errors import BudgetError, InvalidArgument
from tests.joins.cases import Case, folder_of
from tests.joins.conformance.operators import Maker, every_operator, every_operator_with

KINDS = ["inner", "left", "semi", "anti"]
KEYS = 40
STREAM = pa.schema([("s", pa.int64()), ("number", pa.int64())])
RELATION = pa.schema([("k", pa.int64()), ("v", pa.string())])
Rows = list[tuple[int | None, str]]


def relation_table(rows: Rows) -> pa.Table:
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.table([pa.array(keys, pa.int64()), pa.array(values, pa.string())], schema=RELATION)


def joined(how: str, key: int | None, number: int, rows: Rows) -> Iterator[tuple[Any, ...]]:
    """Yield the results of one stream tuple with one version of R, by the definition of the join."""
    values = [value for k, value in rows if k == key and key is not None]
    if how in ("inner", "left"):
        yield from ((key, number, value) for value in values)
        if how == "left" and not values:
            yield key, number, None
    elif bool(values) == (how == "semi"):
        yield key, number


class Versions:
    """A relation and its history: its versions on disk, and the expected rows of each."""

    def __init__(self, rows: Rows) -> None:
        self.relations = [Relation.build(relation_table(rows), folder_of(self) / "r", key="k", page_bytes=512)]
        self.rows = [rows]

    def update(self, upserts: Rows, deletes: list[int]) -> None:
        touched = {key for key, _ in upserts} | set(deletes)
        kept = [row for row in self.rows[-1] if row[0] not in touched]
        self.relations.append(self.relations[-1].update(relation_table(upserts), pa.array(deletes, pa.int64())))
        self.rows.append(kept + upserts)


@dataclass
class History:
    """A join over a relation that changes, driven step by step; knows what each tuple pushed must have seen."""

    operator: SemiStreamJoin
    versions: Versions
    newest: int = 0
    seen: int = 0  # the version that the next push is joined with
    pushed: list[tuple[int | None, int, int]] = field(default_factory=list)  # key, number, version
    results: list[pa.RecordBatch] = field(default_factory=list)

    def push(self, keys: list[int | None]) -> None:
        first = len(self.pushed)
        self.pushed += [(key, first + i, self.seen) for i, key in enumerate(keys)]
        numbers = pa.array(range(first, first + len(keys)), pa.int64())
        self.results += self.operator.push(pa.record_batch([pa.array(keys, pa.int64()), numbers], schema=STREAM))

    def step(self) -> None:
        self.results += self.operator.step()

    def update(self, *_: object) -> None:
        """Go on to the next version, which exists already."""
        self.newest += 1

    def update_now(self, upserts: Rows, deletes: list[int]) -> None:
        self.versions.update(upserts, deletes)
        self.update()

    def refresh(self) -> None:
        self.operator.refresh(self.versions.relations[self.newest])
        self.seen = self.newest

    def check(self) -> None:
        """The history is serial: the tuples of each version, in the order of their push, joined with that version."""
        self.results += self.operator.flush()
        results = pa.Table.from_batches(self.results, self.operator.schema)
        counted = [v for v, rows in self.operator.stats.versions.items() for _ in range(rows)]
        assert counted == [self.versions.relations[version].version for _, _, version in self.pushed]
        expected: Counter[tuple[Any, ...]] = Counter()
        for key, number, version in self.pushed:
            expected.update(joined(self.operator.spec.how, key, number, self.versions.rows[version]))
        assert Counter(zip(*(column.to_pylist() for column in results.columns), strict=True)) == expected
        stats = self.operator.stats
        assert stats.rows_in == stats.rows_done == len(self.pushed)
        assert stats.outputs == results.num_rows
        assert stats.peak_bytes <= stats.budget_bytes == self.operator.budget.limit


def make(maker: Maker, relation: Relation, how: str, memory: int | str = "1MB", **options: Any) -> SemiStreamJoin:
    return maker.make(relation, case_of(how), memory, **options)


def case_of(how: str) -> Case:
    return Case(relation_table([]), ("k",), (), STREAM, {"s": "k"}, how)


@contextmanager
def started(maker: Maker, how: str, rows: Rows) -> Iterator[History]:
    versions = Versions(rows)
    with make(maker, versions.relations[0], how) as operator:
        yield History(operator, versions)


keys = st.integers(0, KEYS)
values = st.sampled_from(["", "x", "a longer value", "y" * 60])
relation_rows = st.lists(st.tuples(keys, values), max_size=60)
actions = st.one_of(
    st.tuples(st.just("push"), st.lists(st.one_of(keys, st.none()), max_size=30)),
    st.tuples(st.just("step")),
    st.tuples(
        st.just("update"),
        st.one_of(
            relation_rows,  # any keys, also new ones,
            st.builds(lambda key, n: [(key, "z" * 50)] * n, keys, st.integers(8, 30)),  # or one that splits its page
        ),
        st.one_of(
            st.lists(keys, max_size=5),
            st.builds(lambda low: list(range(low, low + 20)), keys),  # enough to empty pages
        ),
    ),
    st.tuples(st.just("refresh")),
)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[Versions, list[tuple[Any, ...]]]:
    """Any interleaving, and the versions that it makes: on disk, for all operators together."""
    versions = Versions(draw(relation_rows))
    script = draw(st.lists(actions, max_size=12))
    for action, *arguments in script:
        if action == "update":
            versions.update(*arguments)
    return versions, script


@pytest.mark.slow
@every_operator_with(examples=40, how=st.sampled_from(KINDS), script=scripts(), ordered=st.booleans())
def test_any_interleaving_of_pushes_steps_and_updates_is_a_serial_history(
    maker: Maker, how: str, script: tuple[Versions, list[tuple[Any, ...]]], ordered: bool
) -> None:
    versions, actions = script
    with make(maker, versions.relations[0], how, ordered=ordered) as operator:
        history = History(operator, versions)
        for action, *arguments in actions:
            getattr(history, action)(*arguments)
        history.check()


PLAIN: Rows = [(i % KEYS, f"v{i}") for i in range(200)]


@pytest.mark.slow
@every_operator
def test_pages_that_split_empty_and_appear_between_versions(maker: Maker) -> None:
    for how in KINDS:
        with started(maker, how, PLAIN) as history:
            history.push([*range(KEYS + 5), None])
            history.update_now([(7, "w" * 50)] * 40, list(range(20, 40)))
            history.refresh()
            history.push([*range(KEYS + 5), None])
            history.step()
            history.update_now([(k, "new") for k in range(1000, 1100)], list(range(8)))
            history.refresh()
            history.push([*range(KEYS + 5), *range(995, 1105)])
            history.update_now([], [*range(KEYS), *range(1000, 1100)])
            history.refresh()
            history.push([*range(KEYS + 5), 1000])
            history.check()
            assert list(history.operator.stats.versions) == [1, 2, 3, 4]
            assert history.operator.relation.num_rows == 0


@every_operator
def test_a_batch_pushed_before_a_refresh_sees_the_old_version_however_late_it_is_consumed(maker: Maker) -> None:
    with started(maker, "left", PLAIN) as history:
        history.update_now([(3, "new")], [])
        batch = pa.record_batch({"s": [3], "number": [0]})
        results = history.operator.push(batch)
        history.pushed.append((3, 0, 0))
        history.refresh()  # before any of the work was done
        history.results += results
        history.push([3, 3])
        history.check()
        assert history.operator.stats.versions == {1: 1, 2: 2}


@every_operator
def test_of_several_refreshes_the_last_counts(maker: Maker) -> None:
    with started(maker, "inner", PLAIN) as history:
        history.push([1, 2])
        for value in ("a", "b"):
            history.update_now([(1, value)], [])
            history.refresh()
        history.push([1])
        history.refresh()  # to the version that is joined already
        history.push([1])
        history.check()
        assert history.operator.stats.versions == {1: 2, 3: 2}


@every_operator
def test_old_versions_can_be_vacuumed_once_nothing_waits_for_them(maker: Maker) -> None:
    with started(maker, "left", PLAIN) as history:
        history.push([*range(KEYS)])
        history.update_now([(1, "new")], [2])
        history.refresh()
        for _ in range(1000):
            history.step()
        assert history.operator.relation.version == 2
        history.versions.relations[-1].vacuum()
        history.push([*range(KEYS)])
        history.check()


@every_operator
def test_a_version_that_needs_more_memory_is_refused_and_the_old_one_stays(maker: Maker) -> None:
    versions = Versions(PLAIN)
    least = maker.least_memory(versions.relations[0], case_of("inner"))
    with make(maker, versions.relations[0], "inner", least) as operator:
        history = History(operator, versions)
        history.push([1, 2])
        history.update_now([(1, "x" * 20_000)], [])  # a page of its own, for which all buffers must have room
        operator.refresh(versions.relations[1])
        results = operator.push(pa.record_batch({"s": [1], "number": [2]}))
        with pytest.raises(BudgetError, match="at least") as refused:
            history.results.extend(results)
        assert refused.value.least_bytes is not None
        assert operator.relation.version == 1
        assert operator.budget.limit == least
        history.push([1, 3])  # still with the version before: the other one was given up
        history.results += operator.set_memory(10 * refused.value.least_bytes)
        history.refresh()
        history.push([1, 4])
        history.check()
        assert operator.stats.versions == {1: 4, 2: 2}


def test_another_schema_or_key_is_refused(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2], "v": ["a", "b"]})
    relation = Relation.build(table, tmp_path / "r", key="k")
    wider = Relation.build(table.append_column("w", pa.array([1, 2])), tmp_path / "wider", key="k")
    other_key = Relation.build(table, tmp_path / "other", key="v")
    with MeshJoin(relation, STREAM, on={"s": "k"}, memory="1MB") as operator:
        for other in (wider, other_key):
            with pytest.raises(InvalidArgument, match="unlike the version being joined"):
                operator.refresh(other)
        list(operator.push(pa.record_batch({"s": [1], "number": [0]})))
        assert [row["v"] for batch in operator.flush() for row in batch.to_pylist()] == ["a"]


def test_counts_of_reads_go_on_over_versions_and_budgets(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([None, *range(50), None], pa.int64()), "v": np.arange(52)})
    relation = Relation.build(table, tmp_path / "r", key="k", page_bytes=512)
    batch = pa.record_batch({"s": pa.array([1, 30], pa.int64()), "number": [0, 1]})
    with MeshJoin(relation, STREAM, on={"number": "v"}, memory="1MB") as operator:  # rows with a null key take part
        pages = []
        for _ in range(3):
            results = [*operator.push(batch), *operator.flush()]
            assert sum(b.num_rows for b in results) == 2
            pages.append(operator.stats.pages_read)
            relation = relation.update(deletes=[40])
            operator.refresh(relation)
            list(operator.set_memory("2MB"))
        assert pages[0] > relation.num_pages
        assert pages == [pages[0], pages[1], 2 * pages[1] - pages[0]]
        with pytest.raises(BudgetError):
            list(operator.set_memory(1))
        list(operator.step())
        assert operator.stats.pages_read == pages[2]
