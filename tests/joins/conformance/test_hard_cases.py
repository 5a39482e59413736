"""Inputs and events that break joins, each tried on every operator."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream
from semistream import MeshJoin, Relation, SemiStreamJoin
from semistream.errors import BudgetError, JoinFailed, JoinInProgress
from semistream.joined_stream import JoinedStream
from semistream.joins.sweep.operator import SweepJoin
from tests.joins.cases import Case
from tests.joins.conformance import checks
from tests.joins.conformance.operators import Maker, every_operator
from tests.oracle import multiset
from tests.relation.read.test_run_reader_faults import FailingDisk

KINDS = ["inner", "left", "semi", "anti"]


def one_batch(relation: pa.Table, stream: pa.Table, how: str, page_bytes: int = 1024) -> Case:
    batches = stream.combine_chunks().to_batches()
    return Case(relation, ("k",), tuple(batches), stream.schema, {"s": "k"}, how, page_bytes)


def check(maker: Maker, case: Case, memories: tuple[int | str, ...] = (0, "2MB")) -> None:
    """Exact and within each of the budgets; 0 is the least."""
    with case.built() as relation:
        for given in memories:
            with maker.make(relation, case, given or maker.least_memory(relation, case)) as operator:
                results = []
                for result in _in_turn(operator, case.batches):
                    assert result.nbytes <= operator.budget.by_name["output"]
                    assert operator.budget.used <= operator.budget.limit
                    results.append(result)
                assert multiset(pa.Table.from_batches(results, operator.schema)) == case.expected_rows
                assert operator.stats.peak_bytes <= operator.budget.limit
                assert operator.stats.matched == case.matched


def _in_turn(operator: SemiStreamJoin, batches: tuple[pa.RecordBatch, ...]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from operator.push(batch)
    yield from operator.flush()


@cache
def one_key_is_half_of_the_stream(how: str) -> Case:
    relation = pa.table({"k": [7, 7, *range(300)], "v": [f"v{i}" for i in range(302)]})
    keys = np.where(np.arange(500) % 2, 7, np.arange(500))
    return one_batch(relation, pa.table({"s": keys, "number": np.arange(500)}), how)


@cache
def no_key_of_the_stream_is_in_the_relation(how: str) -> Case:
    """Keys lie before, between and behind those of R, in its pages and in the gaps between them."""
    keys = [i for i in range(0, 2000, 4) if i % 400 < 300]
    absent = [*range(-50, 0), *(i for i in range(1, 2000, 7) if i % 4), *range(2000, 2100)]
    stream = pa.table({"s": pa.array([*absent, None], pa.int64())})
    return one_batch(pa.table({"k": keys, "v": range(len(keys))}), stream, how)


@cache
def every_row_of_the_relation_has_the_same_key(how: str) -> Case:
    relation = pa.table({"k": [5] * 300, "v": ["x" * (i % 30) for i in range(300)]})
    return one_batch(relation, pa.table({"s": [5, 4, 6, 5] * 10, "number": range(40)}), how)


@cache
def the_relation_is_one_page(how: str) -> Case:
    stream = pa.table({"s": [*range(12), 3, 3], "number": range(14)})
    return one_batch(pa.table({"k": range(10), "v": range(10)}), stream, how, 65536)


@cache
def the_relation_is_empty(how: str) -> Case:
    relation = pa.schema([("k", pa.int64()), ("v", pa.string())]).empty_table()
    return one_batch(relation, pa.table({"s": [1, None, 3]}), how)


@cache
def both_sides_have_two_hundred_columns(how: str) -> Case:
    relation = pa.table({"k": range(60)} | {f"r{i}": pa.array([i] * 60, pa.int16()) for i in range(200)})
    stream = pa.table({"s": range(40, 80)} | {f"s{i}": [f"{i}"] * 40 for i in range(200)})
    return one_batch(relation, stream, how, 8192)


@pytest.mark.slow
@every_operator
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize(
    "case",
    [
        one_key_is_half_of_the_stream,
        no_key_of_the_stream_is_in_the_relation,
        every_row_of_the_relation_has_the_same_key,
        the_relation_is_one_page,
        the_relation_is_empty,
    ],
)
def test_exact_and_within_the_budget_if(case: Callable[[str], Case], how: str, maker: Maker) -> None:
    check(maker, case(how))


@pytest.mark.slow
@every_operator
def test_exact_and_within_the_budget_if_rows_are_wide(maker: Maker) -> None:
    check(maker, both_sides_have_two_hundred_columns("left"))


@every_operator
def test_a_relation_far_smaller_than_memory(maker: Maker) -> None:
    check(maker, the_relation_is_one_page("left"), ("256MB",))


def odd_columns(rows: int) -> dict[str, pa.Array]:
    """Columns with nulls, of types that are not stored as plain values in a row."""
    numbers = [None if i % 7 == 3 else i for i in range(rows)]
    return {
        "words": pa.array([None if n is None else f"word {n % 5}" for n in numbers]).dictionary_encode(),
        "nothing": pa.nulls(rows),
        "price": pa.array([None if n is None else Decimal(n) / 100 for n in numbers], pa.decimal128(12, 2)),
        "wide": pa.array([None if n is None else Decimal(n) * 10**30 for n in numbers], pa.decimal128(38, 0)),
        "tree": pa.array([None if n is None else [{"a": n, "b": ["x"] * (n % 3)}] * (n % 4) for n in numbers]),
        "pairs": pa.array([None if n is None else [("a", n)] for n in numbers], pa.map_(pa.string(), pa.int64())),
    }


@cache
def odd_case(how: str) -> tuple[Case, Case]:
    """A join of such columns, and the same with plain ones instead of dictionaries, which DuckDB gives out."""
    relation = pa.table({"k": range(100), **odd_columns(100)})
    stream = pa.table({"s": [(i * 3) % 130 for i in range(160)], **odd_columns(160)})
    return one_batch(relation, stream, how, 2048), one_batch(_decoded(relation), _decoded(stream), how, 2048)


@every_operator
@pytest.mark.parametrize("how", ["left", "anti"])
def test_dictionaries_decimals_trees_and_nulls_are_carried(maker: Maker, how: str) -> None:
    case, plain = odd_case(how)
    with case.built() as built, maker.make(built, case, "2MB") as operator:
        results = checks.run(operator, case.batches)
    assert multiset(_decoded(results)) == plain.expected_rows
    assert results.schema.names == plain.expected.schema.names
    assert results.schema.field("words").type == case.stream_schema.field("words").type


def _decoded(table: pa.Table) -> pa.Table:
    fields = [f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [MeshJoin, SweepJoin])
def test_a_batch_of_five_million_rows(kind: type[SemiStreamJoin], tmp_path: Path) -> None:
    rows = 5_000_000
    relation = Relation.build(pa.table({"k": np.arange(0, 10_000, 2)}), tmp_path / "r", key="k", page_bytes=8192)
    batch = pa.record_batch({"s": np.arange(rows) % 10_000})
    memory = 20_000_000  # half of what the batch alone takes
    with kind(relation, batch.schema, on={"s": "k"}, how="semi", memory=memory) as operator:
        largest = found = 0
        for results in _in_turn(operator, (batch,)):
            largest, found = max(largest, results.nbytes), found + results.num_rows
        assert found == rows / 2
        assert largest <= 10_000_000
        assert operator.stats.peak_bytes <= memory


@contextmanager
def no_hanging(seconds: int = 60) -> Iterator[None]:
    """Turn a call that never returns into an error, so that the other tests still run."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"nothing came back for {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def nothing_left() -> Iterator[None]:
    """No thread and no open file is left over at the end."""
    threads, files = set(threading.enumerate()), _open_files()
    yield
    assert set(threading.enumerate()) == threads
    assert _open_files() == files


def _open_files() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the folder's own descriptor is gone by now
        try:
            found.add(str(Path("/proc/self/fd", descriptor).readlink()))
        except FileNotFoundError:
            continue
    return {path for path in found if path.startswith("/") and not path.startswith("/dev/")} | {
        path for path in found if path.startswith("/dev/shm")
    }


@cache
def long_case(how: str = "inner") -> Case:
    relation = pa.table({"k": range(6000), "v": [f"value {i}" for i in range(6000)]})
    stream = pa.table({"s": [(i * 37) % 6100 for i in range(5000)], "number": range(5000)})
    return Case(relation, ("k",), tuple(stream.to_batches(max_chunksize=900)), stream.schema, {"s": "k"}, how, 1024)


def reads_through_disk(maker: Maker) -> bool:
    return getattr(maker.kind, "name", "") != "nested_loop"


@every_operator
@pytest.mark.parametrize("good", [0, 1, 3])
def test_an_error_of_the_disk_reaches_the_caller_and_ends_the_operator(maker: Maker, good: int) -> None:
    if not reads_through_disk(maker):
        pytest.skip("it reads through LMDB")
    case = long_case()
    with case.built() as relation, no_hanging(), nothing_left():
        operator = maker.make(relation, case, "400kB", disk=FailingDisk(good))

        def drain() -> None:
            for batch in case.batches:
                list(operator.push(batch))
            list(operator.flush())

        with pytest.raises(OSError, match="Input/output error"):
            drain()
        assert operator.stats.rows_done < 5000
        calls: list[Callable[[], Any]] = [
            operator.step,
            operator.flush,
            operator.poll,
            lambda: operator.push(case.batches[0]),
            lambda: operator.set_memory("1MB"),
        ]
        for call in calls:
            with pytest.raises(JoinFailed, match=r"Input/output error.*Create a new operator") as refused:
                list(call())
            assert isinstance(refused.value.__cause__, OSError)
        operator.close()
        operator.close()


@every_operator
def test_an_error_of_the_disk_ends_a_whole_join(maker: Maker) -> None:
    if not reads_through_disk(maker):
        pytest.skip("it reads through LMDB")
    case = long_case()
    with case.built() as relation, no_hanging(), nothing_left():
        operator = maker.make(relation, case, "400kB", disk=FailingDisk(3))
        results = JoinedStream(operator, iter(case.batches))
        with pytest.raises(OSError, match="Input/output error"):
            results.read_all()
        assert list(results) == []


@every_operator
def test_a_row_too_wide_is_refused_and_the_operator_says_why_it_ends(maker: Maker) -> None:
    stream = pa.table({"s": [1, 2, 3], "text": ["x", "y" * 3_000_000, "z"]})
    case = one_batch(pa.table({"k": range(100)}), stream, "left")
    for options in ({}, {"ordered": True}, {"deadline_s": 60.0}):
        with case.built() as relation, maker.make(relation, case, "1MB", **options) as operator:
            with pytest.raises(BudgetError, match="does not fit in a budget") as refused:
                checks.run(operator, case.batches)
            with pytest.raises(JoinFailed, match="does not fit in a budget"):
                operator.flush()
            assert refused.value.least_bytes is not None
            with maker.make(relation, case, refused.value.least_bytes, **options) as larger:
                assert checks.run(larger, case.batches).num_rows == 3


@every_operator
def test_an_iterator_left_half_way_leaves_nothing(maker: Maker) -> None:
    case = long_case("left")
    with case.built() as relation, no_hanging():
        memory = maker.least_memory(relation, case) + 20_000
        with nothing_left():
            operator = maker.make(relation, case, memory)
            results = operator.push(pa.concat_batches(case.batches))
            next(results)
            with pytest.raises(JoinInProgress, match="push"):
                operator.flush()
            results.close()  # type: ignore[attr-defined]
            with pytest.raises(JoinInProgress, match="have not been consumed"):
                operator.step()
            operator.close()
        with nothing_left(), maker.make(relation, case, memory) as operator:
            next(operator.push(pa.concat_batches(case.batches)))


@every_operator
def test_a_joined_stream_that_is_closed_or_dropped_leaves_nothing(maker: Maker) -> None:
    case = long_case("left")
    with case.built() as relation, no_hanging():
        memory = maker.least_memory(relation, case) + 20_000

        def joined() -> JoinedStream:
            return JoinedStream(maker.make(relation, case, memory), iter([pa.concat_batches(case.batches)]))

        with nothing_left():
            results = joined()
            next(results)
            results.close()
            results.close()
            assert list(results) == []
        gc.disable()  # dropping must be enough
        try:
            with nothing_left():
                results = joined()
                next(results)
                del results
            with nothing_left():
                for _ in joined():
                    break
        finally:
            gc.enable()
        with nothing_left():
            joined().close()  # before it has begun


def test_a_stream_that_fails_ends_the_join(tmp_path: Path) -> None:
    case = long_case()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from case.batches[:3]
        raise ConnectionError("the source is gone")

    with case.built() as relation, nothing_left():
        results = semistream.join(batches(), relation, on=case.on, memory="400kB")
        with pytest.raises(ConnectionError, match="the source is gone"):
            results.read_all()
