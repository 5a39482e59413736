"""Tuples leave the stream buffer unchanged, however narrowly they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.joins.sweep.row_packing import RowPacking
from semistream.joins.sweep.stream_buffer import StreamBuffer
from semistream.keys import CodeRanges

TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int64(), st.integers(-3, 3)),
    (pa.uint64(), st.integers(2**64 - 300, 2**64 - 1)),
    (pa.uint32(), st.integers(0, 2**32 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.timestamp("us"), st.integers(1_700_000_000_000_000, 1_700_000_000_100_000)),
    (pa.decimal128(30, 2), st.decimals(-(10**20), 10**20, places=2)),
    (pa.string(), st.text(max_size=6)),
    (pa.string(), st.integers(0, 9999).map("key-{:05}".format)),
    (pa.large_string(), st.integers(0, 9999).map("order {}".format)),
    (pa.string(), st.just("always")),
    (pa.large_binary(), st.binary(max_size=6)),
    (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=3)),
]


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    schema = pa.schema([(f"c{i}", type_) for i, (type_, _) in enumerate(kinds)])
    rows = draw(st.lists(st.integers(1, 30), min_size=1, max_size=5))

    def column(rows: int, type_: pa.DataType, values: st.SearchStrategy[Any]) -> pa.Array:
        drawn = draw(st.lists(st.none() | values if draw(st.booleans()) else values, min_size=rows, max_size=rows))
        return pa.array(drawn, type_)

    return [pa.RecordBatch.from_arrays([column(n, *kind) for kind in kinds], schema=schema) for n in rows]


@settings(deadline=None)
@given(batches=batches(), seed=st.integers(0, 99), slack=st.sampled_from([0, 100, 100_000]))
def test_tuples_come_out_as_they_went_in(batches: list[pa.RecordBatch], seed: int, slack: int) -> None:
    generator = np.random.default_rng(seed)
    schema = batches[0].schema
    nbytes = 30 * RowPacking(schema).most_row_bytes + 30 * 12 * len(schema) + slack + 200
    buffer = StreamBuffer(RowPacking(schema), nbytes, 30)
    stored: list[tuple[Any, pa.RecordBatch, np.ndarray]] = []
    for batch in batches:
        done = 0
        while done < batch.num_rows:
            piece = batch.slice(done)
            codes = generator.integers(-50, 50, piece.num_rows) << generator.integers(0, 50)
            possible = generator.random(piece.num_rows) < 0.8 if generator.random() < 0.5 else None
            place = buffer.room(piece.num_rows)
            ranges = CodeRanges(codes, None, possible)
            level = None if place is None else buffer.store(place, piece, np.ones(piece.num_rows, np.int64), ranges)
            if level is None:
                assert buffer.levels, "there is always room for some tuples if nothing else is stored"
                buffer.leave()
                stored.pop(0)
                continue
            buffer.enter(level, 0, 1)
            order = np.arange(level.rows) if possible is None else np.flatnonzero(possible[: level.rows])
            order = order[np.argsort(codes[order], kind="stable")]
            assert level.matchable == order.size
            if possible is not None:
                order = np.concatenate([order, np.flatnonzero(~possible[: level.rows])])
            asked, base, _, ends = buffer.asked(level)
            np.testing.assert_array_equal(asked.astype(np.int64) + base, codes[order[: level.matchable]])
            assert ends is None
            stored.append((level, piece, order))
            done += level.rows
            if not buffer.packing.unpacked and generator.random() < 0.5:
                kept = [some_rows(level.matchable, generator) for level, _, _ in stored]
                buffer.keep(kept)
                stored = [
                    (level, piece, np.concatenate([order[begin:end] for begin, end in ranges]))
                    for ranges, (level, piece, order) in zip(kept, stored, strict=True)
                ]
    check_all(buffer, stored, generator)


def some_rows(rows: int, generator: Any) -> list[tuple[int, int]]:
    """Up to three ranges of rows, some of them empty."""
    bounds = np.sort(generator.integers(0, rows + 1, 6)).tolist()
    return list(zip(bounds[::2], bounds[1::2], strict=True))[generator.integers(0, 3) :]


def check_all(buffer: StreamBuffer, stored: list[tuple[Any, pa.RecordBatch, np.ndarray]], generator: Any) -> None:
    view = buffer.view
    numbers = np.concatenate([level.numbers(0, level.rows) for level, _, _ in stored])
    expected = pa.Table.from_batches([piece.take(pa.array(order)) for _, piece, order in stored])
    shuffled = generator.permutation(numbers.size)
    taken = view.take(numbers[shuffled])
    for column, values in zip(expected.columns, taken, strict=True):
        assert values.to_pylist() == column.take(pa.array(shuffled)).to_pylist()
        values.validate(full=True)
    some = shuffled[: shuffled.size // 2]
    view.mark(numbers[some])
    matched = np.concatenate([view.matched(level) for level, _, _ in stored])
    assert sorted(np.flatnonzero(matched)) == sorted(some)


@pytest.mark.parametrize(("span", "nbytes"), [(0, 0), (255, 1), (65_535, 2), (2**32 - 1, 4), (2**32, 8)])
def test_values_that_lie_close_together_take_few_bytes(span: int, nbytes: int) -> None:
    rows = 1000
    times = np.full(rows, 10**15)
    times[0] += span
    batch = pa.record_batch({"at": times})
    buffer = StreamBuffer(RowPacking(batch.schema), 100_000, rows)
    place = buffer.room(rows)
    assert place is not None
    level = buffer.store(place, batch, np.ones(rows, np.int64), CodeRanges(np.arange(rows), None, None))
    assert level is not None
    assert level.place.nbytes == rows * (4 + 1 + nbytes)  # the code, a flag and the time


@settings(deadline=None)
@given(
    near=st.sampled_from([-(2**63), 2**63 - 41, -20]),
    steps=st.lists(st.integers(0, 40), min_size=1, max_size=20),
    code=st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 0, -1])),
    behind=st.booleans(),
)
def test_positions_of_codes_however_far_from_those_that_wait(
    near: int, steps: list[int], code: int, behind: bool
) -> None:
    codes = np.array(sorted(near + step for step in steps), np.int64)
    batch = pa.record_batch({"k": pa.array(codes)})
    buffer = StreamBuffer(RowPacking(batch.schema), 10_000, 30)
    place = buffer.room(codes.size)
    assert place is not None
    level = buffer.store(place, batch, np.full(codes.size, 8), CodeRanges(codes, None, None))
    assert level is not None
    buffer.enter(level, 0, 1)
    assert buffer.position(level, code, behind=behind) == np.searchsorted(codes, code, "right" if behind else "left")
