"""Joins to try: small tables drawn by Hypothesis, with keys of many types and shapes."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from semistream import Relation
from tests.oracle import batch_join, multiset

MEMORY_BACKED = "/dev/shm" if Path("/dev/shm").is_dir() else None  # many small relations: spare the disk its syncs


def folder_of(owner: object) -> Path:
    """A new folder that lives as long as its owner."""
    folder = tempfile.mkdtemp(dir=MEMORY_BACKED)
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@dataclass(frozen=True)
class Case:
    """A relation, a stream in batches, and the terms of their join. Derived values are computed once."""

    relation: pa.Table
    key: tuple[str, ...]
    batches: tuple[pa.RecordBatch, ...]
    stream_schema: pa.Schema
    on: dict[str, str]
    how: str
    page_bytes: int = 1024
    column_groups: tuple[tuple[str, ...], ...] = ()

    @property
    def stream(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.stream_schema)

    @property
    def payload(self) -> list[str]:
        return [name for name in self.relation.column_names if name not in self.key]

    @contextmanager
    def built(self) -> Iterator[Relation]:
        """The relation on disk, built on first use and kept as long as the case: do not update it."""
        yield self._built

    @cached_property
    def _built(self) -> Relation:
        options = {"page_bytes": self.page_bytes, "column_groups": self.column_groups}
        return Relation.build(self.relation, folder_of(self) / "r", key=self.key, **options)

    @cached_property
    def expected(self) -> pa.Table:
        """The batch join by DuckDB."""
        return batch_join(self.stream, self.relation, self.on, self.how, self.payload)

    @cached_property
    def expected_rows(self) -> Counter[tuple[Any, ...]]:
        """Its rows."""
        return multiset(self.expected)

    @cached_property
    def matched(self) -> int:
        """Number of stream tuples that have a partner."""
        return batch_join(self.stream, self.relation, self.on, "semi", []).num_rows


DAY = dt.date(2024, 2, 29)
# Few values, so that keys meet, repeat and span pages; and the extremes of each type.
KEY_TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [*range(-3, 12), 2**63 - 1, -(2**63)]),
    (pa.int32(), [*range(-3, 12), 2**31 - 1, -(2**31)]),
    (pa.uint64(), [*range(8), 2**63, 2**64 - 1]),
    (pa.string(), ["", "a", "b", "ä", "key", "x" * 40, *"pqrstu"]),
    (pa.binary(), [b"", b"\x00", b"\x00\x00", b"abc", b"z" * 33]),
    (pa.float64(), [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), 1e308]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [DAY, dt.date(1969, 12, 31), DAY + dt.timedelta(1)]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, d, tzinfo=dt.UTC) for d in range(1, 9)]),
    (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("-1.10"), Decimal("99999999.99"), Decimal("7.25")]),
    (pa.decimal128(30, 2), [Decimal("0.00"), Decimal("-1.10"), Decimal(10**20), Decimal("7.25")]),
]
PAYLOAD_TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.string(), st.text(max_size=12)),
    (pa.bool_(), st.booleans()),
    (pa.float32(), st.floats(width=32)),
    (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=3)),
    (
        pa.struct([("a", pa.int16()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.just(1), "b": st.text(max_size=3)}),
    ),
    (pa.decimal128(20, 3), st.decimals(-1000, 1000, places=3)),
]


@st.composite
def _column(draw: st.DrawFn, type_: pa.DataType, values: st.SearchStrategy[Any], rows: int) -> pa.Array:
    nulls = draw(st.sampled_from([0.0, 0.2]))
    picks = st.one_of(values, st.none()) if nulls else values
    return pa.array(draw(st.lists(picks, min_size=rows, max_size=rows)), type_)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A case: one or two key columns, any payload, any split of the stream into batches."""
    kinds = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=2))
    r_rows, s_rows = draw(st.integers(0, 120)), draw(st.integers(0, 80))
    r_columns, s_columns, on = {}, {}, {}
    for i, (type_, values) in enumerate(kinds):
        pool = st.sampled_from(draw(st.lists(st.sampled_from(values), min_size=1, max_size=len(values))))
        r_columns[f"k{i}"] = draw(_column(type_, st.one_of(pool, st.sampled_from(values)), r_rows))
        s_columns[f"s{i}"] = draw(_column(type_, pool, s_rows))
        on[f"s{i}"] = f"k{i}"
    for i, (type_, values) in enumerate(draw(st.lists(st.sampled_from(PAYLOAD_TYPES), max_size=3))):
        r_columns[f"p{i}"] = draw(_column(type_, values, r_rows))
    for i, (type_, values) in enumerate(draw(st.lists(st.sampled_from(PAYLOAD_TYPES), max_size=2))):
        s_columns[f"q{i}"] = draw(_column(type_, values, s_rows))
    if draw(st.booleans()) and s_rows:
        s_columns["p0"] = pa.array(range(s_rows))  # a name that the relation may have too
    stream = pa.table(s_columns)
    cuts = sorted(draw(st.lists(st.integers(0, s_rows), max_size=4)))
    batches = [
        pa.RecordBatch.from_arrays([c.combine_chunks() for c in stream.slice(a, b - a).columns], schema=stream.schema)
        for a, b in zip([0, *cuts], [*cuts, s_rows], strict=True)
    ]
    how = draw(st.sampled_from(["inner", "left", "semi", "anti"]))
    page_bytes = draw(st.sampled_from([512, 1500, 65536]))
    relation = pa.table(r_columns)
    groups = draw(column_groups([name for name in relation.column_names if name.startswith("p")]))
    return Case(relation, tuple(on.values()), tuple(batches), stream.schema, on, how, page_bytes, groups)


@st.composite
def column_groups(draw: st.DrawFn, columns: list[str]) -> tuple[tuple[str, ...], ...]:
    """Some of the columns in one or more groups; often in none."""
    if not draw(st.booleans()):
        return ()
    numbers = draw(st.lists(st.integers(0, 3), min_size=len(columns), max_size=len(columns)))
    placed = list(zip(columns, numbers, strict=True))
    groups = (tuple(column for column, number in placed if number == group) for group in range(1, 4))
    return tuple(group for group in groups if group)
