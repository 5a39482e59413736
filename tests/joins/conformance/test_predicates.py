"""Joins by order, distance, inequality, equality of any columns, and expressions: exact, and in budget."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream
from semistream import HybridJoin, IndexNestedLoopJoin, MeshJoin, Relation, SemiStreamingIndexJoin, SemiStreamJoin
from semistream.errors import BudgetError, ColumnNotFound, InvalidArgument, KeyTypeError
from semistream.joins.condition.condition import Condition
from semistream.joins.condition.pair_check import PairCheck
from semistream.joins.parts import emitter
from semistream.joins.parts import sorted_codes as sorted_ranges
from semistream.joins.sweep.operator import SweepJoin
from semistream.relation.null_keys import NullKeyPages
from tests.joins.cases import MEMORY_BACKED
from tests.joins.conformance.checks import run
from tests.joins.conformance.predicate_cases import PredicateCase, predicate_cases
from tests.oracle import multiset, sql_join

Make = Callable[[int | str], SemiStreamJoin]


def maker(kind: Callable[..., SemiStreamJoin], relation: Relation, case: PredicateCase, **options: Any) -> Make:
    def make(memory: int | str) -> SemiStreamJoin:
        return kind(relation, case.schema, on=case.on, where=case.where, how=case.how, memory=memory, **options)

    return make


def least_memory(make: Make) -> int:
    with pytest.raises(BudgetError) as refused:
        make(1)
    assert refused.value.least_bytes is not None
    return refused.value.least_bytes


def check(make: Make, case: PredicateCase, memory: int) -> None:
    with make(memory) as operator:
        results = run(operator, case.batches)
        stats = operator.stats
    expected = sql_join(case.stream, case.relation, case.sql, case.how, case.payload)
    assert results.column_names == expected.column_names
    assert multiset(results) == multiset(expected)
    assert stats.peak_bytes <= memory
    assert stats.rows_in == stats.matched + stats.unmatched == case.stream.num_rows
    assert stats.matched == sql_join(case.stream, case.relation, case.sql, "semi", []).num_rows
    assert stats.inserts == stats.expiries
    held = operator.budget.by_name
    assert not {"output", "stream tuples", "merged packets"} & set(held), held


def check_operators(case: PredicateCase, extra: int, options: dict[str, int]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY_BACKED) as folder:
        relation = Relation.build(case.relation, f"{folder}/r", key=case.key, page_bytes=case.page_bytes)
        mesh = maker(MeshJoin, relation, case, **options)
        check(mesh, case, least_memory(mesh) + extra)
        condition = Condition.of(relation, case.schema, on=case.on, where=case.where)
        phases = {"input_threshold": 5, "stream_threshold": 11} if options else {}
        short = {"pages_per_step": options.get("pages_per_step"), "seek_bytes": 2048} if options else {}
        for kind, by_index in (
            (IndexNestedLoopJoin, {}),
            (SemiStreamingIndexJoin, phases),
            (HybridJoin, short),
            (SweepJoin, {}),
        ):
            make = maker(kind, relation, case, **by_index)
            if condition.access == "scan":
                with pytest.raises(InvalidArgument, match=f"operator '{kind.name}' finds rows by the relation's key"):
                    make("1MB")
            else:
                check(make, case, least_memory(make) + extra)


@pytest.mark.slow
@given(
    case=predicate_cases(),
    extra=st.sampled_from([0, 1, 5000, 100_000, 50_000_000]),
    options=st.sampled_from([{}, {"rows_per_step": 3, "pages_per_step": 2}, {"pages_per_step": 1}]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_results_equal_the_batch_join(case: PredicateCase, extra: int, options: dict[str, int]) -> None:
    check_operators(case, extra, options)


def band_case(how: str = "inner", where: str = "abs(s.x - r.k) <= 40", key: str = "k") -> PredicateCase:
    relation = pa.table({"k": [i % 220 for i in range(400)], "name": ["x" * (i % 70) for i in range(400)]})
    relation = relation.append_column("other", pa.array([i % 7 or None for i in range(400)]))
    stream = pa.table({"x": [i * 3 % 240 for i in range(120)], "label": ["x" * (i % 60) for i in range(120)]})
    batches = tuple(stream.to_batches(max_chunksize=30))
    return PredicateCase(relation, (key,), batches, stream.schema, None, [where], where, how, 1024)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_many_matches_come_out_in_bounded_batches(how: str) -> None:
    check_operators(band_case(how), 3000, {})
    check_operators(band_case(how, "s.label > r.name"), 3000, {})
    check_operators(band_case(how, "s.x = r.other", key="other"), 3000, {})


def test_rows_with_a_null_key_are_met_by_a_scan() -> None:
    wide = [None if i % 3 else i for i in range(600)]
    relation = pa.table({"k": wide, "v": [i % 40 for i in range(600)], "t": ["y" * (i % 90) for i in range(600)]})
    stream = pa.table({"x": [i % 50 for i in range(70)]})
    for where in ("s.x = r.v", "s.x > r.v", "s.x = r.v AND s.x <= r.v"):
        for options in ({}, {"pages_per_step": 1, "rows_per_step": 20}):
            case = PredicateCase(
                relation,
                ("k",),
                tuple(stream.to_batches(max_chunksize=30)),
                stream.schema,
                None,
                [where],
                where,
                "left",
                2048,
            )
            check_operators(case, 0, options)
    only_nulls = relation.set_column(0, "k", pa.nulls(600, pa.int64()))
    check_operators(
        PredicateCase(
            only_nulls, ("k",), tuple(stream.to_batches()), stream.schema, {"x": "v"}, [], "s.x = r.v", "inner", 2048
        ),
        100_000,
        {},
    )


def test_closing_among_null_keys_leaves_no_file(tmp_path: Path) -> None:
    relation = pa.table({"k": pa.nulls(3000, pa.int64()), "v": range(3000)})
    built = Relation.build(relation, tmp_path / "r", key="k")
    before = set(Path("/proc/self/fd").iterdir())
    operator = MeshJoin(built, pa.schema([("x", pa.int64())]), on={"x": "v"}, memory="1MB")
    assert list(operator.push(pa.record_batch({"x": [7]}))) == []
    assert [batch.num_rows for batch in operator.step()] == [1]
    assert operator.stats.pages_read == 1
    assert operator.stats.rows_waiting == 1  # it has not met the rest of the null keys
    operator.close()
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_checks_of_wide_values_are_cut_to_what_is_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every checked piece fits the bytes charged for it, though one pair is half a page."""
    relation = pa.table({"k": range(200), "t": ["r" * (6000 if i % 9 == 0 else i) for i in range(200)]})
    stream = pa.table(
        {"x": [i * 7 % 200 for i in range(90)], "u": ["r" * (4000 if i % 8 == 0 else i) for i in range(90)]}
    )
    built = Relation.build(relation, tmp_path / "r", key="k", page_bytes=8192)
    sizes: list[int] = []
    holds = PairCheck.holds

    def watched(self: PairCheck, left: list[pa.Array], right: list[pa.Array]) -> Any:
        sizes.append(sum(array.nbytes for array in [*left, *right]))
        return holds(self, left, right)

    monkeypatch.setattr(PairCheck, "holds", watched)
    where = "s.x >= r.k AND s.u != r.t"
    case = PredicateCase(
        relation, ("k",), tuple(stream.to_batches(max_chunksize=20)), stream.schema, None, [where], where, "inner", 0
    )
    for kind in (MeshJoin, IndexNestedLoopJoin, SemiStreamingIndexJoin, HybridJoin):
        make = maker(kind, built, case)
        memory = least_memory(make) + 20_000
        with make(memory) as operator:
            reserved = operator.budget.by_name["pair checks"]
        check(make, case, memory)
        assert max(sizes) <= reserved // 2
        assert len(sizes) > 10


def access(relation: Relation, stream: pa.Schema, on: Any = None, where: Any = None) -> tuple[str, bool]:
    condition = Condition.of(relation, stream, on=on, where=where)
    return condition.access, condition.check is not None


def test_how_rows_are_found(tmp_path: Path) -> None:
    table = pa.table({"k": [1], "g": [1], "name": ["a"], "f": [1.0]})
    stream = pa.schema(
        [("x", pa.int64()), ("y", pa.int64()), ("g", pa.int64()), ("n", pa.string()), ("f", pa.float32())]
    )
    by = {
        key: Relation.build(table, tmp_path / "-".join(key), key=key) for key in [("k",), ("name",), ("k", "g"), ("f",)]
    }
    k, name, both, f = by.values()
    assert access(k, stream, {"x": "k"}) == ("equality", False)
    assert access(k, stream, where="s.x = r.k") == ("equality", False)
    assert access(k, stream, {"x": "k", "g": "g"}) == ("equality", True)
    assert access(k, stream, {"x": "k"}, "s.y < r.k") == ("equality", True)
    assert access(name, stream, {"n": "name"}) == ("equality", True)  # a hash is verified
    assert access(both, stream, {"x": "k", "g": "g"}) == ("equality", True)
    assert access(k, stream, where="s.x < r.k") == ("range", False)
    assert access(k, stream, where="r.k BETWEEN s.x AND s.y") == ("range", False)
    assert access(k, stream, "g", "abs(s.x - r.k) <= 3") == ("range", True)
    assert access(f, stream, where="abs(s.f - r.f) < 3") == ("range", True)  # floats are rounded
    assert access(k, stream, "g", "s.x < r.k") == ("scan", True)  # half of R is no help beside an equality
    assert access(k, stream, "g") == ("scan", False)
    assert access(both, stream, {"x": "k"}) == ("scan", False)
    assert access(both, stream, where="s.x < r.k") == ("scan", True)
    assert access(name, stream, where="s.n < r.name") == ("scan", True)
    assert access(k, stream, where="s.x != r.k") == ("scan", True)
    assert access(k, stream, where=pc.field("x") < pc.field("k")) == ("scan", True)


def test_only_what_an_expression_reads_is_gathered(tmp_path: Path) -> None:
    relation = Relation.build(pa.table({"k": [1], "x": [2], "big": ["b"], "s": [{"a": 1}]}), tmp_path / "r", key="k")
    stream = pa.schema([("x", pa.int64()), ("wide", pa.string()), ("y", pa.int64())])
    where = [(pc.field("x_right") < pc.field("y")) | (pc.field("s", "a") == 3), "s.x <= r.k"]
    check = Condition.of(relation, stream, on={"y": "x"}, where=where).check
    assert check is not None
    assert [stream.names[i] for i in check.stream_columns] == ["x", "y"]
    assert [column.name for column in check.relation_columns] == ["k", "x", "s"]


@pytest.fixture
def rates(tmp_path: Path) -> Relation:
    table = pa.table({"since": [0, 10, 20], "until": [9, 19, 29], "rate": ["low", "mid", "high"]})
    return Relation.build(table, tmp_path / "rates", key="since")


ORDERS = pa.table({"at": [5, 19, 40, None], "rate": ["a", "b", "c", "d"]})


def test_the_key_comes_out_unless_on_equates_it(rates: Relation) -> None:
    joined = semistream.join(ORDERS, rates, where="s.at BETWEEN r.since AND r.until", how="left", memory="1MB")
    assert joined.read_all().sort_by("rate").to_pylist() == [
        {"at": 5, "rate": "a", "since": 0, "until": 9, "rate_right": "low"},
        {"at": 19, "rate": "b", "since": 10, "until": 19, "rate_right": "mid"},
        {"at": 40, "rate": "c", "since": None, "until": None, "rate_right": None},
        {"at": None, "rate": "d", "since": None, "until": None, "rate_right": None},
    ]
    on_other = semistream.join(ORDERS, rates, on={"at": "until"}, memory="1MB").read_all()
    assert on_other.to_pylist() == [{"at": 19, "rate": "b", "since": 10, "rate_right": "mid"}]


def test_explain_tells_the_condition(rates: Relation) -> None:
    text = semistream.join(ORDERS, rates, where=["s.at > r.since", pc.field("until") > 3], memory="1MB").explain()
    assert "s.at > r.since AND (until > 3)" in text


def test_a_stream_row_too_wide_to_be_checked_is_refused_with_the_least_memory(rates: Relation) -> None:
    wide = pa.table({"at": [1], "text": ["x" * 2_000_000]})
    where = ["s.text != r.rate", "s.at < r.since"]
    with pytest.raises(BudgetError, match=r"a stream row of 2\d+ bytes does not fit") as refused:
        semistream.join(wide, rates, where=where, memory="1MB").read_all()
    joined = semistream.join(wide, rates, where=where, memory=refused.value.least_bytes)
    assert joined.read_all()["rate"].to_pylist() == ["mid", "high"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, InvalidArgument, "neither on nor where"),
        ({"where": []}, InvalidArgument, "neither on nor where"),
        ({"where": 5}, InvalidArgument, r"of type int \(5\); give a string, a pyarrow"),
        ({"where": [5]}, InvalidArgument, "where is or contains an object of type int"),
        ({"where": "s.att < r.since"}, ColumnNotFound, "Did you mean 'at'"),
        ({"where": "s.at < r.sinze"}, ColumnNotFound, "Did you mean 'since'"),
        ({"where": "s.at < r.rate"}, KeyTypeError, "stream type int64 and relation type string"),
        ({"where": pc.field("nowhere") > 3}, InvalidArgument, "joined row has the columns at: int64"),
        ({"where": pc.field("at") + 3}, InvalidArgument, "of type int64, not boolean"),
        ({"where": pc.field(0) > 3}, InvalidArgument, "by position"),
        ({"where": pc.scalar(1)}, InvalidArgument, "of type int64, not boolean"),
        ({"where": "s.at < r.until", "operator": "nested_loop"}, InvalidArgument, r"s.at < r.until.*operator='mesh'"),
    ],
)
def test_what_cannot_work_is_refused(rates: Relation, arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        semistream.join(ORDERS, rates, memory="1MB", **arguments)


def _broken(case: PredicateCase) -> None:
    with pytest.raises(AssertionError):
        check_operators(case, 3000, {})


def test_a_range_cut_short_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    match = sorted_ranges.match_ranges

    def short(words: Any, starts: Any, rows: Any, low: Any, high: Any, *rest: Any) -> int:
        return int(match(words, starts, rows, low, high - (high > low), *rest))

    monkeypatch.setattr(sorted_ranges, "match_ranges", short)
    _broken(band_case())


def test_a_reach_that_forgets_wide_ranges_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    match = sorted_ranges.match_ranges

    def forgetful(words: Any, starts: Any, rows: Any, low: Any, high: Any, reach: Any, *rest: Any) -> int:
        return int(match(words, starts, rows, low, high, np.maximum.accumulate(low), *rest))

    monkeypatch.setattr(sorted_ranges, "match_ranges", forgetful)
    _broken(band_case())


def test_unchecked_pairs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter.Emitter, "verified", lambda *_: slice(None))
    _broken(band_case(where="s.label != r.name"))


def test_forgotten_null_keys_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = NullKeyPages.read
    monkeypatch.setattr(NullKeyPages, "read", lambda self: iter([next(reads(self))] * self.count))
    with pytest.raises(AssertionError):
        test_rows_with_a_null_key_are_met_by_a_scan()
