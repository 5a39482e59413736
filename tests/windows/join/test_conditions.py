"""Joins by other keys than one integer: strings, several columns, bands, predicates, and worth of results."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import ColumnNotFound, InvalidArgument, KeyTypeError
from semistream.windows import Band, ComputedProbabilities, GivenProbabilities, Prob, WindowJoin
from tests.windows import naive
from tests.windows.join.test_exact import batch_join, predicate
from tests.windows.streams import SCHEMAS, batch_of, drive, pairs_of, streams, whole

VALUES: dict[str, tuple[pa.DataType, pa.DataType, st.SearchStrategy[Any], Any, str]] = {
    "integers": (pa.int32(), pa.int64(), st.integers(-20, 20), 5, "abs(l.x - r.x) <= 5"),
    "unsigned": (pa.uint64(), pa.uint64(), st.integers(0, 30), 3, "abs(l.x::INT - r.x::INT) <= 3"),
    "decimals": (
        pa.decimal128(6, 1), pa.decimal128(9, 3), st.integers(-90, 90).map(lambda i: Decimal(i) / 10), 0.75,
        "abs(l.x - r.x) <= 0.75",
    ),
    "wide decimals": (
        pa.decimal128(30, 1), pa.decimal128(30, 2), st.integers(-90, 90).map(lambda i: Decimal(i) / 10), 2,
        "abs(l.x - r.x) <= 2",
    ),
    "floats": (
        pa.float32(), pa.float64(),
        st.integers(-40, 40).map(lambda i: i / 8) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e30]), 0.5,
        # DuckDB takes NaN for equal to NaN, and greater than all else; a distance from it is no number.
        "NOT isnan(l.x) AND NOT isnan(r.x) AND abs(l.x::DOUBLE - r.x) <= 0.5 AND NOT isnan(l.x::DOUBLE - r.x)",
    ),
    "equal floats": (
        pa.float64(), pa.float64(), st.sampled_from([0.0, -0.0, 1.5, -2.25, math.nan]), 0.0,
        "NOT isnan(l.x) AND NOT isnan(r.x) AND l.x = r.x",
    ),
    "timestamps": (
        pa.timestamp("s"), pa.timestamp("ms"),
        st.integers(0, 600).map(lambda s: datetime(2024, 1, 1) + timedelta(seconds=s)),
        "2 minutes", "abs(epoch_ms(l.x) - epoch_ms(r.x)) <= 120000",
    ),
    "dates": (
        pa.date32(), pa.date64(), st.integers(0, 40).map(lambda d: (datetime(2024, 2, 1) + timedelta(days=d)).date()),
        timedelta(days=3), "abs(l.x::DATE - r.x::DATE) <= 3",
    ),
}  # fmt: skip


def tables(
    data: st.DataObject, left: pa.DataType, right: pa.DataType, values: st.SearchStrategy[Any]
) -> list[pa.Table]:
    """Streams with a column x, times and positions."""
    made = []
    for name, type_ in (("l", left), ("r", right)):
        rows = data.draw(st.lists(st.tuples(st.integers(0, 2), values | st.none()), max_size=25))
        times = np.cumsum([step for step, _ in rows]).astype(np.int64) if rows else np.empty(0, np.int64)
        x = pa.array([value for _, value in rows], type_)
        made.append(pa.table({"x": x, "t": times, name: pa.array(range(len(rows)), pa.int64())}))
    return made


def joined(join: WindowJoin, left: pa.Table, right: pa.Table) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    for batch in left.to_batches(max_chunksize=7):
        found += join.push_left(batch)
    for batch in right.to_batches(max_chunksize=5):
        found += join.push_right(batch)
    return found + list(join.finish())


def by_duckdb(left: pa.Table, right: pa.Table, condition: str) -> Counter[Any]:
    return batch_join([], [], condition, (left, right))


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_band(kind: str, data: st.DataObject) -> None:
    left_type, right_type, values, epsilon, condition = VALUES[kind]
    left, right = tables(data, left_type, right_type, values)
    for policy in ("prob", "random"):
        join = WindowJoin(
            left.schema, right.schema, band=Band("x", "x", epsilon), time="t", window=6, policy=policy, batch_rows=8
        )
        assert pairs_of(joined(join, left, right)) == by_duckdb(left, right, f"{condition} AND {predicate(6, 6)}")


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_strings_and_composite_keys(data: st.DataObject) -> None:
    values = st.sampled_from(["", "a", "b", "é", "x" * 40])
    left, right = tables(data, pa.string(), pa.large_string(), values)
    left = left.append_column("y", pa.array([i % 2 for i in range(len(left))], pa.int8()))
    right = right.append_column("z", pa.array([i % 2 for i in range(len(right))], pa.int64()))
    join = WindowJoin(left.schema, right.schema, on={"x": "x", "y": "z"}, time="t", window=9)
    found = joined(join, left, right)
    assert join.schema.names == ["x", "t", "l", "y", "t_right", "r"]
    assert pairs_of(found) == by_duckdb(left, right, f"l.x = r.x AND l.y = r.z AND {predicate(9, 9)}")


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_predicates_over_the_joined_row(data: st.DataObject) -> None:
    left, right = tables(data, pa.int64(), pa.int64(), st.integers(0, 5))
    less = pc.field("x") < pc.field("x_right") + 1
    alone = WindowJoin(left.schema, right.schema, where=less, time="t", window=4)
    condition = f"l.x < r.x + 1 AND {predicate(4, 4)}"
    assert pairs_of(joined(alone, left, right)) == by_duckdb(left, right, condition)
    both = WindowJoin(
        left.schema, right.schema, on="x", band=Band("l", "r", 3), where=pc.field("r") != 2, time="t", window=4
    )
    condition = f"l.x = r.x AND abs(l.l - r.r) <= 3 AND r.r <> 2 AND {predicate(4, 4)}"
    assert pairs_of(joined(both, left, right)) == by_duckdb(left, right, condition)


def test_other_columns_come_through_whatever_their_type() -> None:
    """Strings, lists, dictionaries and nulls, of tuples that stayed in memory over many batches and others."""
    generator = np.random.default_rng(4)
    rows = 600
    left = pa.table({
        "k": generator.integers(0, 40, rows), "l": np.arange(rows),
        "s": [None if i % 7 == 0 else "s" * (i % 9) for i in range(rows)],
        "list": [list(range(i % 4)) if i % 5 else None for i in range(rows)],
        "dictionary": pa.array([f"d{i % 3}" for i in range(rows)]).dictionary_encode(),
        "flag": [None if i % 11 == 0 else i % 2 == 0 for i in range(rows)],
    })  # fmt: skip
    right = pa.table({"k": generator.integers(0, 40, rows), "r": np.arange(rows), "price": generator.random(rows)})
    for memory in (None, 60, "2MB"):
        join = WindowJoin(left.schema, right.schema, on="k", window=150, memory=memory, policy="random")
        results = []
        for i in range(0, rows, 20):
            results += join.push_left(left.slice(i, 20).combine_chunks().to_batches()[0])
            results += join.push_right(right.slice(i, 20).combine_chunks().to_batches()[0])
        found = pa.Table.from_batches([*results, *join.finish()], join.schema)
        assert found.num_rows > 200
        for name in ("s", "list", "dictionary", "flag", "k"):
            assert found.column(name).to_pylist() == left.column(name).take(found.column("l")).to_pylist()
        assert found.column("price").to_pylist() == right.column("price").take(found.column("r")).to_pylist()


@given(left=streams(rows=30), right=streams(rows=30))
@settings(max_examples=30, deadline=None)
def test_weights_are_given_out_and_guide_the_policy(left: Any, right: Any) -> None:
    """val(r, s) = 1 + 10 * key, known before the partner arrives: worth is val times the frequency."""
    naive.whole_stream_frequencies(left, right)
    whole_tables = [pa.Table.from_batches([batch_of(stream, side)]) for side, stream in enumerate((left, right))]
    source = GivenProbabilities.of_streams(*whole_tables, on="k")
    weight = pc.field("k") * 10 + 1
    model = naive.Naive(
        (naive.Window(8), naive.Window(8)),
        (3, 3),
        lambda model, one: naive.grid(naive.prob(model, one) * (10 * one.key + 1)),
    ).run(left, right)
    by_function = lambda rows: pc.add(pc.multiply(rows.column("k"), 10), 1)  # noqa: E731
    for given_weight in (weight, by_function):
        join = WindowJoin(
            *SCHEMAS, on="k", time="t", window=8, memory=6, policy=Prob(source), weight=given_weight, weight_column="w"
        )
        batches = list(drive(join, left, right, whole(left, right)))
        assert pairs_of(batches) == model.results
        keys = [key for batch in batches for key in batch.column("k").to_pylist()]
        assert [w for batch in batches for w in batch.column("w").to_pylist()] == [10 * key + 1 for key in keys]
        assert join.stats.weight == sum(10 * key + 1 for key in keys)


def test_worth_unknown_before_the_partner_arrives_counts_as_one() -> None:
    left = pa.record_batch({"k": [1, 2], "a": [5.0, None]})
    right = pa.record_batch({"k": [1, 2], "b": [2.0, 3.0]})
    join = WindowJoin(
        left.schema, right.schema, on="k", window=5, weight=pc.field("a") * pc.field("b"), weight_column="w"
    )
    found = [row for b in [*join.push_left(left), *join.push_right(right), *join.finish()] for row in b.to_pylist()]
    assert [row["w"] for row in found] == [10.0, 0.0]
    assert join.stats.weight == 10.0


@given(left=streams(rows=30), right=streams(rows=30))
@settings(max_examples=20, deadline=None)
def test_computed_probabilities(left: Any, right: Any) -> None:
    """A predicate other than equality: a left tuple joins the right ones with greater keys."""
    later = [sum(key >= k for _, key in right) / 4 for k in range(4)]
    earlier = [sum(key <= k for _, key in left) / 4 for k in range(4)]

    def likely(side: str, batch: pa.RecordBatch) -> Any:
        return [(later if side == "left" else earlier)[k] for k in batch.column("k").to_pylist()]

    join = WindowJoin(
        *SCHEMAS, where=pc.field("k") <= pc.field("k_right"), time="t", window=8, memory=6,
        policy=Prob(ComputedProbabilities(likely)),
    )  # fmt: skip
    model = naive.Naive(
        (naive.Window(8), naive.Window(8)), (3, 3),
        lambda _, one: naive.grid((later if one.side == 0 else earlier)[one.key]), matches=lambda a, b: a <= b,
    ).run(left, right)  # fmt: skip
    assert pairs_of(list(drive(join, left, right, whole(left, right)))) == model.results


@given(left=streams(rows=30, keys=9), right=streams(rows=30, keys=9))
@settings(max_examples=20, deadline=None, derandomize=True)  # ties fall otherwise: the same examples each time
def test_given_probabilities_of_a_band_add_up_over_it(left: Any, right: Any) -> None:
    whole_tables = [pa.Table.from_batches([batch_of(stream, side)]) for side, stream in enumerate((left, right))]
    naive.whole_stream_frequencies(left, right)
    source = GivenProbabilities.of_streams(*whole_tables, on="k")
    longest = max(len(left), len(right), 1)

    def near(_: naive.Naive, one: naive.Tuple) -> float:
        other = (right, left)[one.side]
        return naive.grid(sum(abs(key - one.key) <= 2 for _, key in other) / longest * (1 + 1e-12))

    join = WindowJoin(*SCHEMAS, band=Band("k", "k", 2), time="t", window=8, memory=6, policy=Prob(source))
    model = naive.Naive((naive.Window(8), naive.Window(8)), (3, 3), near, matches=lambda a, b: abs(a - b) <= 2).run(
        left, right
    )
    found = pairs_of(list(drive(join, left, right, whole(left, right))))
    assert abs(sum(found.values()) - sum(model.results.values())) <= max(2, sum(model.results.values()) // 3)
    exact = naive.Naive((naive.Window(8), naive.Window(8)), None, matches=lambda a, b: abs(a - b) <= 2).run(left, right)
    assert not found - exact.results


def test_conditions_that_cannot_be() -> None:
    left, right = pa.schema([("k", pa.int64()), ("s", pa.string())]), pa.schema([("k", pa.string()), ("n", pa.int64())])
    with pytest.raises(
        KeyTypeError, match="key 'k' of the left stream is int64 but key 'k' of the right stream is string"
    ):
        WindowJoin(left, right, on="k", window=3)
    with pytest.raises(KeyTypeError, match="cannot be a join key"):
        WindowJoin(pa.schema([("k", pa.list_(pa.int8()))]), right, on="k", window=3)
    with pytest.raises(ColumnNotFound, match="the right stream has no column 's'"):
        WindowJoin(left, right, on="s", window=3)
    with pytest.raises(InvalidArgument, match="no on, no band and no where"):
        WindowJoin(left, right, window=3)
    with pytest.raises(InvalidArgument, match="where is of type int64"):
        WindowJoin(left, right, where=pc.field("n") + 1, window=3)
    with pytest.raises(InvalidArgument, match="where cannot be evaluated"):
        WindowJoin(left, right, where=pc.field("nothing") > 1, window=3)
    with pytest.raises(InvalidArgument, match="epsilon is -1"):
        Band("k", "n", -1)
    with pytest.raises(KeyTypeError, match="cannot be compared without loss"):
        WindowJoin(left, right, band=Band("s", "n", 1), window=3)
    with pytest.raises(InvalidArgument, match="must be a number"):
        WindowJoin(left, right, band=Band("k", "n", "5 minutes"), window=3)
    keys = pa.table({"k": [1], "frequency": [1.0]})
    policy = Prob(GivenProbabilities(keys, keys))
    with pytest.raises(InvalidArgument, match="for other predicates give ComputedProbabilities"):
        WindowJoin(*SCHEMAS, where=pc.field("k") < pc.field("k_right"), window=3, policy=policy)
