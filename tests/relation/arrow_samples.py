"""One small array of every Arrow type that a relation may hold, with its extremes and nulls."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

UNITS = ("s", "ms", "us", "ns")
INT64 = np.iinfo(np.int64)


def _raw(values: list[int | None], type_: pa.DataType) -> pa.Array:
    """Values by their stored integers: Python's own dates and times do not reach the extremes."""
    width = pa.int32() if type_.bit_width == 32 else pa.int64()
    return pa.array(values, width).view(type_)


def _ints(type_: pa.DataType) -> pa.Array:
    limits = np.iinfo(str(type_))
    return pa.array([limits.min, limits.max, 0, 1, None], type_)


def _floats(dtype: Any) -> pa.Array:
    values = np.array([0.0, -0.0, 1.5, -np.inf, np.inf, np.nan, np.finfo(dtype).tiny], dtype)
    return pa.concat_arrays([pa.array(values), pa.nulls(1, pa.from_numpy_dtype(dtype))])


def _decimals(type_: pa.DataType) -> pa.Array:
    digits = (9,) * type_.precision
    values = [Decimal((sign, digits, -type_.scale)) for sign in (0, 1)]
    return pa.array([*values, Decimal(0), None], type_)


_TEXT = ["", "a", "\0", "äöü€𝄞", "x" * 300, None]
_BYTES = [b"", b"\0\xff", b"x" * 300, None]
_JSON = pa.array(["{}", None, "[1]"], pa.string())
_WORDS = pa.array([["ab", None, ""], None, [], ["x" * 200]])

PLAIN: dict[str, pa.Array] = {
    **{str(t): _ints(t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): _ints(t) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "float16": _floats(np.float16),
    "float32": _floats(np.float32),
    "float64": _floats(np.float64),
    "bool": pa.array([True, False, None]),
    "null": pa.nulls(3),
    "decimal32": _decimals(pa.decimal32(9, 2)),
    "decimal64": _decimals(pa.decimal64(18, 4)),
    "decimal128": _decimals(pa.decimal128(38, 10)),
    "decimal128 of negative scale": _decimals(pa.decimal128(10, -3)),
    "decimal256": _decimals(pa.decimal256(76, 30)),
    "fixed_size_binary 0": pa.array([b"", None], pa.binary(0)),
    "fixed_size_binary 3": pa.array([b"abc", b"\0\0\0", None], pa.binary(3)),
    "fixed_size_binary 16": pa.array([b"a" * 16, None], pa.binary(16)),
    "date32": _raw([-(2**31), 2**31 - 1, 0, None], pa.date32()),
    "date64": _raw([-86_400_000, 0, 2**36 * 86_400_000, None], pa.date64()),
    **{f"time32 {u}": _raw([0, 86_399, None], pa.time32(u)) for u in UNITS[:2]},
    **{f"time64 {u}": _raw([0, 86_399_999_999, None], pa.time64(u)) for u in UNITS[2:]},
    **{f"duration {u}": _raw([INT64.min, INT64.max, 0, None], pa.duration(u)) for u in UNITS},
    **{
        f"timestamp {u} {zone}": _raw([INT64.min, INT64.max, 0, 1, None], pa.timestamp(u, zone))
        for u in UNITS
        for zone in (None, "UTC", "Europe/Berlin", "+05:30")
    },
    "month_day_nano_interval": pa.array([(1, -2, 3), (-(2**31), 2**31 - 1, INT64.max), None]),
    "string": pa.array(_TEXT),
    "large_string": pa.array(_TEXT, pa.large_string()),
    "binary": pa.array(_BYTES),
    "large_binary": pa.array(_BYTES, pa.large_binary()),
}
"""Types that come back as they were."""

NESTED: dict[str, pa.Array] = {
    "list": pa.array([[1, None], None, [], list(range(50))], pa.list_(pa.int32())),
    "large_list": pa.array([[1, None], None, []], pa.large_list(pa.int32())),
    "fixed_size_list": pa.array([[1.5, None], None, [3, 4]], pa.list_(pa.float32(), 2)),
    "list of strings": _WORDS,
    "list of bools": pa.array([[True, None], None, []]),
    "list with a named item": pa.array([[1], None, []], pa.list_(pa.field("element", pa.int64(), nullable=False))),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    "struct without fields": pa.array([{}, None], pa.struct([])),
    "struct of names that differ by case": pa.array([{"a": 1, "A": "x"}, None]),
    "map": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
    "map with sorted keys": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64(), keys_sorted=True)),
    "list of structs": pa.array([[{"a": 1, "b": ["q"]}, None], None, []]),
    "map of lists of structs": pa.array(
        [[("k", [{"t": 5}])], None, []], pa.map_(pa.string(), pa.list_(pa.struct([("t", pa.time32("ms"))])))
    ),
    "list of timestamps ns": pa.array([[1, None], None, []], pa.list_(pa.timestamp("ns"))),
    "list of zoned timestamps": pa.array([[1, None], None, []], pa.list_(pa.timestamp("us", "Europe/Berlin"))),
    "list of durations": pa.array([[1, None], None, []], pa.list_(pa.duration("s"))),
    "list of dates64": pa.array([[86_400_000, None], None, []], pa.list_(pa.date64())),
    "list of float16": pa.array([[np.float16(1), None], None, []], pa.list_(pa.float16())),
    "list of decimals": pa.array([[Decimal("1.1"), None], None, []], pa.list_(pa.decimal128(20, 2))),
    "list of decimals 256": pa.array([[Decimal("1.1"), None], None, []], pa.list_(pa.decimal256(40, 2))),
    "null in a struct": pa.array([{"n": None, "a": 1}, None], pa.struct([("n", pa.null()), ("a", pa.int8())])),
    "list of nulls": pa.array([[None, None], None, []], pa.list_(pa.null())),
    "list of fixed_size_binary": pa.array([[b"abc", None], None, []], pa.list_(pa.binary(3))),
}

_LISTS: list[list[int] | None] = [[1], None, [], [2, 3]]
_CODES = pa.array([0, 5, 0], pa.int8())
_SPARSE = pa.UnionArray.from_sparse(_CODES, [pa.array([1, 2, None]), pa.array(["a", "b", None])], ["n", "s"], [0, 5])
UNIONS: dict[str, pa.Array] = {
    "sparse union": _SPARSE,
    "list of sparse unions": pa.ListArray.from_arrays([0, 0, 1, 3], _SPARSE),
    "struct of a sparse union": pa.StructArray.from_arrays([_SPARSE], ["u"], mask=pa.array([False, True, False])),
}
"""Unions, of which Arrow cannot make arrays from Python."""

ENCODED: dict[str, tuple[pa.Array, pa.Array]] = {
    "dictionary of strings": (pa.array(_TEXT).dictionary_encode(), pa.array(_TEXT)),
    "dictionary of ints": (pa.array([5, None, 5]).dictionary_encode(), pa.array([5, None, 5])),
    "string_view": (pa.array(_TEXT, pa.string_view()), pa.array(_TEXT)),
    "binary_view": (pa.array(_BYTES, pa.binary_view()), pa.array(_BYTES)),
    "run_end_encoded": (pc.run_end_encode(pa.array([7, 7, None])), pa.array([7, 7, None])),
    "uuid": (pa.array([b"a" * 16, None], pa.uuid()), pa.array([b"a" * 16, None], pa.binary(16))),
    "json": (pa.ExtensionArray.from_storage(pa.json_(), _JSON), _JSON),
    "list of string_view": (_WORDS.cast(pa.list_(pa.string_view())), _WORDS),
    "list of dictionaries": (
        pa.array(_WORDS.to_pylist(), pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        _WORDS,
    ),
    "list_view": (pa.array(_LISTS, pa.list_view(pa.int8())), pa.array(_LISTS, pa.list_(pa.int8()))),
    "dense union": (
        pa.UnionArray.from_dense(
            _CODES, pa.array([0, 0, 1], pa.int32()), [pa.array([1, None]), pa.array(["b"])], ["n", "s"], [0, 5]
        ),
        _SPARSE,
    ),
    "list of uuid": (
        pa.ListArray.from_arrays([0, 1, 1], pa.array([b"a" * 16], pa.uuid())),
        pa.array([[b"a" * 16], []], pa.list_(pa.binary(16))),
    ),
}
"""Types stored as the plain values they stand for: the given and the stored type."""


def comparable(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The array in a form that `equals` compares bit by bit: Arrow says that NaN differs from itself."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays([*array.chunks, pa.array([], array.type)])
    if pa.types.is_floating(array.type):
        return array.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[array.type.bit_width])
    return array
