"""Join cases that others found worth a test: each names the suite and the test that it was modelled on."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

Row = dict[str, Any]
_NAN = math.nan
_UTC, _JST = "UTC", "Asia/Tokyo"
_NOON = dt.datetime(2024, 2, 29, 12)
_random = np.random.default_rng(33)


@dataclass(frozen=True)
class PeerCase:
    """Columns of S and of R, the key of R, and a condition; ``holds`` is the part of it that ``on`` is not."""

    origin: str
    stream: dict[str, Any]
    relation: dict[str, Any]
    on: dict[str, str] = field(default_factory=dict)
    where: str | None = None
    holds: Callable[[Row, Row], bool] = lambda s, r: True
    key: tuple[str, ...] = ()
    chunk: int | None = None
    page_bytes: int = 1024

    @property
    def relation_key(self) -> tuple[str, ...]:
        return self.key or tuple(self.on.values())

    def matches(self, s: Row, r: Row) -> bool:
        """Compare by what values denote: null equals nothing, NaN equals NaN."""
        return all(_equal(s[left], r[right]) for left, right in self.on.items()) and self.holds(s, r)


def _equal(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    both_nan = isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right)
    return both_nan or bool(left == right)


def _coded(values: list[str | None], width: pa.DataType | None = None) -> pa.Array:
    return pa.array(values).dictionary_encode().cast(pa.dictionary(width or pa.int32(), pa.string()))


def _ints(values: list[int | None], type_: pa.DataType) -> pa.Array:
    return pa.array(values, type_)


def _keyed(values: Any, name: str = "k") -> dict[str, Any]:
    return {name: values, "w": pa.array(range(len(values)))}


def _stream(values: Any) -> dict[str, Any]:
    return {"s": values, "v": pa.array(range(len(values)))}


def _simple(origin: str, stream: Any, relation: Any, **more: Any) -> PeerCase:
    return PeerCase(origin, _stream(stream), _keyed(relation), {"s": "k"}, **more)


def _many(rows: int, keys: int, type_: pa.DataType | None = None) -> pa.Array:
    return pa.array(_random.integers(0, keys, rows)).cast(type_ or pa.int64())


POLARS = [
    _simple("Polars test_join: null keys match nothing", [1, None, 3, None], [None, 1, None, 3, 3]),
    _simple("Polars test_join: all keys are null", pa.nulls(3, pa.int64()), pa.nulls(4, pa.int64())),
    _simple("Polars test_join: negative integers", [-10, 20, 1, -(2**63)], [-10, -(2**63), 2**63 - 1]),
    _simple("Polars test_join: Boolean keys", [True, False, None, True], [False, True, True, None]),
    _simple("Polars test_join: categoricals of other sources", _coded(["c", "a", None, "b"]), ["a", "b", "d", None]),
    _simple("Polars test_join: categoricals with their own codes", _coded(["b", "a"]), _coded(["a", "b", "b"])),
    _simple("Polars test_join: the left side is empty", pa.array([], pa.int64()), [1, 2, 3]),
    _simple("Polars test_join: the right side is empty", [1, 2, 3], pa.array([], pa.int64())),
    _simple("Polars test_join: both sides are empty", pa.array([], pa.string()), pa.array([], pa.string())),
    _simple("Polars test_join: many chunks", _many(300, 40), _many(100, 40), chunk=7),
    _simple("Polars test_join: sorted keys with runs", sorted([1, 1, 2, 4, 5, 5, 5]), [0, 1, 1, 2, 3, 5, 5]),
    _simple("Polars test_join: NaN and zeros of both signs", [_NAN, 0.0, -0.0, 1.5, None], [-0.0, _NAN, _NAN, 2.5]),
    _simple(
        "Polars test_join: decimals of two scales",
        pa.array([Decimal("1.5"), Decimal("2.25"), Decimal("-0.5")], pa.decimal128(10, 2)),
        pa.array([Decimal("1.5"), Decimal("2.2"), Decimal("-0.5")], pa.decimal128(20, 1)),
    ),
    PeerCase(
        "Polars test_join: a name that both sides have",
        {"a": [1, 2, 3], "b": [1, 2, 3]},
        {"a": [2, 3, 4], "b": [9, 8, 7], "c": [1, 1, 1]},
        {"a": "a"},
    ),
    PeerCase(
        "Polars test_join_where: a range of two inequalities",
        {"at": [1, 5, 9, None, 20], "v": list("abcde")},
        {"since": [0, 4, 8, 10], "until": [3, 9, None, 19], "w": [1, 2, 3, 4]},
        where="s.at BETWEEN r.since AND r.until",
        holds=lambda s, r: None not in (s["at"], r["until"]) and r["since"] <= s["at"] <= r["until"],
        key=("since",),
    ),
    PeerCase(
        "Polars test_join_where: equality and inequality",
        {"s": [1, 1, 2, 2], "x": [5, 9, 5, 9]},
        {"k": [1, 1, 2], "y": [6, 9, 7]},
        {"s": "k"},
        "s.x < r.y",
        lambda s, r: s["x"] < r["y"],
    ),
]
DUCKDB = [
    _simple("DuckDB inner/test_join_duplicates: a cross product of one key", [1] * 30, [1] * 40),
    _simple("DuckDB inner/test_varchar_join: empty and long strings", ["", "a", "a" * 300, "ä"], ["ä", "", "a" * 300]),
    _simple("DuckDB inner: strings with zero bytes", ["a\0", "a", "\0", "\0\0"], ["\0\0", "a\0b", "a\0", "a"]),
    _simple(
        "DuckDB inner: strings that begin alike for 12 bytes", ["prefix-12345a", "prefix-12345b"], ["prefix-12345b"]
    ),
    _simple("DuckDB inner: blobs", [b"\xff\0", b"", None, b"a"], [b"a", b"\xff\0", b"\xff", b""]),
    _simple("DuckDB inner: small and big integers", _ints([1, 100, -5], pa.int8()), [1, 100, 10**12, -5]),
    _simple("DuckDB types: unsigned with signed", _ints([1, 2**64 - 1, 5], pa.uint64()), [1, -1, 5, 2**63 - 1]),
    _simple("DuckDB types: integers with decimals", [1, 2, -3], [Decimal("1.0"), Decimal("2.5"), Decimal("-3.0")]),
    _simple("DuckDB types: integers with doubles", [1, 2**53 + 1, 3, None], [1.0, 2.0**53, 3.5, _NAN]),
    _simple(
        "DuckDB types: dates", [dt.date(1, 1, 1), dt.date(2024, 2, 29)], [dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
    ),
    _simple(
        "DuckDB types: timestamps of two units",
        pa.array([_NOON, _NOON.replace(year=1960), None], pa.timestamp("s")),
        pa.array([_NOON.replace(microsecond=1), _NOON, _NOON.replace(year=1960)], pa.timestamp("us")),
    ),
    _simple(
        "DuckDB types: hugeint as decimals of 38 digits",
        pa.array([Decimal(10**37), Decimal(-(10**37)), Decimal(7)], pa.decimal128(38, 0)),
        pa.array([Decimal(7), Decimal(10**37), Decimal(10**36)], pa.decimal256(50, 0)),
    ),
    PeerCase(
        "DuckDB iejoin: salaries and taxes, with no equality",
        {"salary": [100, 200, 300], "tax": [30, 20, 10]},
        {"pay": [150, 250, 50], "duty": [25, 15, 40]},
        where="s.salary < r.pay AND s.tax > r.duty",
        holds=lambda s, r: s["salary"] < r["pay"] and s["tax"] > r["duty"],
        key=("pay",),
    ),
    PeerCase(
        "DuckDB inner/test_unequal_join: unequal beside equal",
        {"s": [1, 2, 3, 1], "x": [1, 2, None, 4]},
        {"k": [1, 1, 2, 3], "y": [1, 5, 2, 3]},
        {"s": "k"},
        "s.x != r.y",
        lambda s, r: s["x"] is not None and s["x"] != r["y"],
    ),
    PeerCase(
        "DuckDB left_outer: a condition that is never true for some rows",
        {"s": [1, 2, 3], "x": [10, 0, 10]},
        {"k": [1, 2, 3], "y": [5, 5, 20]},
        {"s": "k"},
        "s.x >= r.y",
        lambda s, r: s["x"] >= r["y"],
    ),
    _simple("DuckDB types/nested: lists with nulls in them", [[1, None], [], None, [2]], [[2], [1, None], [1], None]),
    _simple("DuckDB test_big_join: more matches than a vector holds", _many(200, 3), _many(150, 3)),
    PeerCase(
        "DuckDB inner: a key of three columns with nulls in each",
        {"a": [1, 1, None, 1], "b": ["x", None, "x", "x"], "c": [1.5, 1.5, 1.5, None]},
        {"d": [1, 1, 1], "e": ["x", None, "x"], "f": [1.5, 1.5, None], "w": [1, 2, 3]},
        {"a": "d", "b": "e", "c": "f"},
    ),
]
SPARK = [
    PeerCase(
        "Spark SQL JoinSuite: null-safe equality",
        _stream([1, None, 2, None]),
        _keyed([None, 2, 2, None, 5]),
        where="s.s <=> r.k",
        holds=lambda s, r: s["s"] == r["k"],
        key=("k",),
    ),
    PeerCase(
        "Spark SQL JoinSuite: a cross join",
        _stream([1, 2, 3]),
        _keyed([7, 8, None]),
        where="true",
        key=("k",),
    ),
    PeerCase(
        "Spark SQL JoinSuite: left semi with a condition on the rest of the row",
        {"a": [1, 1, 2, 2, 3, 3, None], "b": [2.0, 1.0, 1.0, 3.0, 2.0, None, None]},
        {"c": [2, 2, 3, 4, None, None], "d": [3.0, 3.0, 2.0, 1.0, None, 5.0]},
        {"a": "c"},
        "s.b < r.d",
        lambda s, r: None not in (s["b"], r["d"]) and s["b"] < r["d"],
    ),
    _simple("Spark SQL JoinSuite: upper and lower case are apart", ["A", "b", "c", "D"], ["a", "B", "c", "D"]),
    _simple("Spark SQL OuterJoinSuite: null and NaN", [None, _NAN, 1.0], [_NAN, None, 1.0]),
    _simple("Spark SQL: int with bigint", _ints([1, 2, -1], pa.int32()), [1, 2**32 + 1, -1, 2]),
    _simple(
        "Spark SQL: decimals of 38 digits",
        pa.array([Decimal("1.00"), Decimal("99999999999999999999.01")], pa.decimal128(38, 2)),
        pa.array([Decimal("99999999999999999999.010"), Decimal("1.000")], pa.decimal128(38, 3)),
    ),
    _simple(
        "Spark SQL: timestamps with a session time zone",
        pa.array([_NOON, None], pa.timestamp("us", _UTC)),
        pa.array([_NOON, _NOON.replace(hour=1)], pa.timestamp("us", _JST)),
    ),
    _simple(
        "Spark SQL: day-time intervals",
        pa.array([dt.timedelta(1), dt.timedelta(microseconds=-1)], pa.duration("us")),
        pa.array([dt.timedelta(1), dt.timedelta(2)], pa.duration("s")),
    ),
    _simple(
        "Spark SQL DataFrameJoinSuite: structs of several types",
        [{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None],
        [{"a": None, "b": "x"}, {"a": 1, "b": "y"}, {"a": 1, "b": "x"}, None],
    ),
    _simple("Spark SQL TypeCoercionSuite: a column that is null throughout", pa.nulls(3), [1, 2, None]),
    _simple("Spark SQL join.sql: a key that no row has", [5, 6], [1, 2, 3]),
    _simple("Spark SQL ExistenceJoinSuite: one row for many matches", [2, 2, 3], [2, 2, 2, 3, 4]),
    _simple("Spark SQL: skewed keys", pa.array([1] * 150 + [2, 3]), pa.array([1, 2, 2, 3, *range(10, 60)])),
]
PANDAS = [
    _simple("pandas test_merge: int with float", _ints([1, 2, 3], pa.int64()), [1.0, 2.5, 3.0]),
    _simple(
        "pandas test_merge: int with uint of other widths", _ints([0, 255], pa.int16()), _ints([255, 0], pa.uint8())
    ),
    _simple("pandas test_merge: None as key on both sides", ["a", None, "c"], [None, "c", None]),
    _simple("pandas test_merge: timedelta keys", pa.array([dt.timedelta(1), None]), pa.array([dt.timedelta(1)] * 2)),
    _simple(
        "pandas test_merge: datetimes of other resolutions",
        pa.array([_NOON, None], pa.timestamp("ms")),
        pa.array([_NOON, _NOON], pa.timestamp("ns")),
    ),
    _simple("pandas test_merge: datetimes before 1970", [dt.datetime(1965, 1, 1)], [dt.datetime(1965, 1, 1)] * 2),
    PeerCase(
        "pandas test_multi: keys of many columns beyond 64 bits",
        {name: _many(60, 3) for name in "abcdefgh"},
        {name.upper(): _many(80, 3) for name in "abcdefgh"} | {"w": pa.array(range(80))},
        {name: name.upper() for name in "abcdefgh"},
    ),
    PeerCase(
        "pandas test_merge: keys of unlike names, one of them in both",
        {"lkey": ["foo", "bar", "baz", "foo"], "value": [1, 2, 3, 5]},
        {"rkey": ["foo", "bar", "qux", "foo"], "value": [5, 6, 7, 8]},
        {"lkey": "rkey"},
    ),
    _simple("pandas test_merge: floats that differ in the last place", [0.1 + 0.2, 0.3], [0.3, 0.30000000000000004]),
    _simple("pandas test_merge: mixed order on both sides", [3, 1, 2, 3, 1], [2, 3, 1, 3, 2]),
]
ARROW = [
    _simple(
        "Arrow hash_join_node_test: dictionaries with unlike indices",
        _coded(["a", "b"], pa.int8()),
        _coded(["b"], pa.int64()),
    ),
    _simple("Arrow hash_join_node_test: large strings with small", pa.array(["x", "y"], pa.large_string()), ["y", "z"]),
    _simple("Arrow hash_join_node_test: views", pa.array(["x" * 20, "y"], pa.string_view()), ["y", "x" * 20]),
    _simple("Arrow hash_join_node_test: fixed-size binaries", pa.array([b"ab", b"cd"], pa.binary(2)), [b"cd", b"c"]),
    _simple(
        "Arrow hash_join_node_test: extension types",
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, None, b"b" * 16], pa.binary(16))),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"b" * 16, b"c" * 16], pa.binary(16))),
    ),
    PeerCase(
        "Arrow hash_join_node_test: a residual filter on strings",
        {"s": [1, 1, 2], "x": ["a", "m", "z"]},
        {"k": [1, 2, 2], "y": ["k", "zz", None]},
        {"s": "k"},
        "s.x <= r.y",
        lambda s, r: r["y"] is not None and s["x"] <= r["y"],
    ),
    _simple(
        "Arrow hash_join_node_test: one long string among short ones",
        ["q" * 20_000, "a"],
        ["a", "q" * 20_000],
        page_bytes=65_536,
    ),
    _simple("Arrow hash_join_node_test: half floats", pa.array(np.float16([0.5, 2.0])), pa.array([0.5, 2.25, 2.0])),
    _simple(
        "Arrow hash_join_node_test: times of day", pa.array([dt.time(1), dt.time(2)], pa.time32("s")), [dt.time(2)]
    ),
    _simple(
        "Arrow hash_join_node_test: slices that begin in a byte's middle", pa.array([True, False] * 9).slice(3), [False]
    ),
    PeerCase(
        "Arrow asof_join_node_test: a tolerance",
        {"at": [10, 20, 30], "v": ["a", "b", "c"]},
        {"time": [8, 12, 29, 45], "w": [1, 2, 3, 4]},
        where="abs(s.at - r.time) <= 2",
        holds=lambda s, r: abs(s["at"] - r["time"]) <= 2,
        key=("time",),
    ),
]
CASES = [*POLARS, *DUCKDB, *SPARK, *PANDAS, *ARROW]
