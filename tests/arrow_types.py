"""One array of every kind of Arrow type, with nulls, and with values that Python can compare."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Hashable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WORDS = ["", "a", None, "a word longer than a view holds in place", "äöü€", "a"]
BYTES = [b"", b"a", None, b"bytes longer than a view holds in place", b"\0\xff", b"a"]
DAYS = [dt.date(2024, 2, 29), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)]
TIMES = [dt.time(0, 0), dt.time(23, 59, 59), None, dt.time(12, 30)]
STAMPS = [dt.datetime(2024, 2, 29, 1, 2, 3), None, dt.datetime(1677, 9, 22), dt.datetime(2262, 1, 1)]
NUMBERS = [Decimal("1.50"), None, Decimal("-9999.99"), Decimal("0.00")]
_TAGS = pa.array([0, 1, 0, 1], pa.int8())


class Celsius(pa.ExtensionType):
    """A user's own type."""

    def __init__(self) -> None:
        super().__init__(pa.float32(), "semistream.tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        del storage_type, serialized
        return cls()


def _extended(type_: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.ExtensionArray.from_storage(type_, pa.array(values, type_.storage_type))


def _coded(indices: list[int | None], values: pa.Array, width: pa.DataType | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, width or pa.int32()), values)


def _in_list(values: pa.Array) -> pa.Array:
    """Lists of no, one and many of the values, and a null."""
    ends = pa.array([0, 0, 1, None, len(values)], pa.int32())
    return pa.ListArray.from_arrays(ends, values)


def _ints(type_: pa.DataType) -> pa.Array:
    limits = np.iinfo(str(type_))
    return pa.array([limits.min, limits.max, 1, None, 2], type_)


_LISTS: list[Any] = [[1, None], None, [], [1, 2, 3]]
_PAIRS: list[Any] = [[("k", 1), ("l", None)], None, []]

TYPES: dict[str, pa.Array] = {
    "null": pa.nulls(3),
    "bool": pa.array([True, False, None]),
    **{str(t): _ints(t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): _ints(t) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "halffloat": pa.array(np.array([0.0, 1.5, -np.inf, np.nan], np.float16), mask=np.arange(4) == 2),
    "float": pa.array([0.0, -0.0, 1.5, None, math.nan], pa.float32()),
    "double": pa.array([0.0, -0.0, 1.5, None, math.nan, -math.inf]),
    "decimal32": pa.array(NUMBERS, pa.decimal32(9, 2)),
    "decimal64": pa.array(NUMBERS, pa.decimal64(18, 2)),
    "decimal128": pa.array(NUMBERS, pa.decimal128(38, 2)),
    "decimal256": pa.array(NUMBERS, pa.decimal256(76, 2)),
    "date32": pa.array(DAYS),
    "date64": pa.array(DAYS, pa.date64()),
    "time32": pa.array(TIMES, pa.time32("s")),
    "time64": pa.array(TIMES, pa.time64("us")),
    "timestamp": pa.array(STAMPS, pa.timestamp("us")),
    "timestamp with a zone": pa.array(STAMPS, pa.timestamp("us", "Europe/Berlin")),
    "duration": pa.array([dt.timedelta(1), None, dt.timedelta(-1), dt.timedelta(0, 1)], pa.duration("ms")),
    "month_day_nano_interval": pa.array([(1, -2, 3), None, (0, 0, 0)], pa.month_day_nano_interval()),
    "string": pa.array(WORDS),
    "large_string": pa.array(WORDS, pa.large_string()),
    "string_view": pa.array(WORDS, pa.string_view()),
    "binary": pa.array(BYTES),
    "large_binary": pa.array(BYTES, pa.large_binary()),
    "binary_view": pa.array(BYTES, pa.binary_view()),
    "fixed_size_binary": pa.array([b"abc", None, b"\0\0\0"], pa.binary(3)),
    "list": pa.array(_LISTS, pa.list_(pa.int32())),
    "large_list": pa.array(_LISTS, pa.large_list(pa.int32())),
    "list_view": pa.array(_LISTS, pa.list_view(pa.int32())),
    "large_list_view": pa.array(_LISTS, pa.large_list_view(pa.int32())),
    "fixed_size_list": pa.array([[1, None], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    "map": pa.array(_PAIRS, pa.map_(pa.string(), pa.int64())),
    "sparse_union": pa.UnionArray.from_sparse(_TAGS, [pa.array([1, 2, None, 4]), pa.array(["a", "b", "c", None])]),
    "dense_union": pa.UnionArray.from_dense(
        _TAGS, pa.array([0, 0, 1, 1], pa.int32()), [pa.array([1, None]), pa.array(["a", "b"])]
    ),
    "dictionary of strings": _coded([0, None, 1, 0], pa.array(["a", "b"]), pa.int8()),
    "dictionary with a null": _coded([0, 1, None, 2], pa.array(["a", None, "b"])),
    "dictionary of string_view": _coded([0, None, 1, 0], pa.array(["a", "b" * 20], pa.string_view())),
    "dictionary of int64": _coded([1, None, 0], pa.array([5, -7])),
    "dictionary of timestamps": _coded([1, None, 0], pa.array(STAMPS, pa.timestamp("us")), pa.uint8()),
    "dictionary of decimal128": _coded([1, None, 0], pa.array(NUMBERS, pa.decimal128(9, 2))),
    "dictionary of decimal32": _coded([1, None, 0], pa.array(NUMBERS, pa.decimal32(9, 2))),
    "dictionary of lists": _coded([1, None, 0], pa.array([[1], [2, 3]])),
    "run-end encoded strings": pc.run_end_encode(pa.array(["a", "a", None, "b"]), run_end_type=pa.int16()),
    "run-end encoded int64": pc.run_end_encode(pa.array([7, 7, 7, None, 1])),
    "uuid": _extended(pa.uuid(), [b"a" * 16, None, b"b" * 16]),
    "json": _extended(pa.json_(), ["{}", None, "[1]"]),
    "bool8": _extended(pa.bool8(), [1, None, 0]),
    "opaque": _extended(pa.opaque(pa.int32(), "t", "v"), [1, None, 2]),
    "fixed_shape_tensor": _extended(pa.fixed_shape_tensor(pa.int32(), [2]), [[1, 2], [3, 4]]),
    "a user's extension type": _extended(Celsius(), [20.5, None, -3.0]),
    "list of string_view": _in_list(pa.array(WORDS, pa.string_view())),
    "list of dictionaries": _in_list(_coded([1, None, 0, 1], pa.array(["a", "b"]), pa.int8())),
    "list of uuid": _in_list(_extended(pa.uuid(), [b"a" * 16, None, b"b" * 16])),
    "list of unions": _in_list(pa.UnionArray.from_sparse(_TAGS, [pa.array([1, 2, 3, 4]), pa.array(list("abcd"))])),
    "list of nulls": _in_list(pa.nulls(3)),
    "struct of null and run ends": pa.StructArray.from_arrays(
        [pa.nulls(3), pc.run_end_encode(pa.array([1, 1, 2]))], ["n", "e"], mask=pa.array([False, True, False])
    ),
    "map of dictionaries to views": pa.MapArray.from_arrays(
        [0, 1, None, 3], _coded([0, 1, 0], pa.array(["a", "b"])), pa.array(["x", None, "y"], pa.string_view())
    ),
}
"""The label in docs/types.md, and values."""


def several(values: pa.Array, rows: int, begin: int = 0) -> pa.Array:
    """The values over and over, from the one with number ``begin`` on, as a slice."""
    times = (rows + begin) // len(values) + 1
    return pa.concat_arrays([values] * times).slice(begin, rows)


def turned(values: pa.Array) -> pa.Array:
    """The same values, with another dictionary if they have one."""
    if not pa.types.is_dictionary(values.type):
        return values
    size = len(values.dictionary)
    indices = pa.array(
        [None if i is None else size - 1 - i for i in values.indices.to_pylist()], values.type.index_type
    )
    backwards = pa.concat_arrays([values.dictionary.slice(size - 1 - i, 1) for i in range(size)])
    return pa.DictionaryArray.from_arrays(pa.array(indices, values.type.index_type), backwards)


def python(values: pa.Array | pa.ChunkedArray) -> list[Hashable]:
    """The values as Python has them, such that equal ones are equal: NaN equals itself."""
    return [_hashable(value) for value in values.to_pylist()]


def _hashable(value: Any) -> Hashable:
    if isinstance(value, float | np.floating):
        return "NaN" if math.isnan(value) else float(value)
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    return value
