"""Sizes of rows in bytes: `row_ends` for cutting pages, `row_sizes` for charging a memory budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.kernels.array_types import Int64s
from semistream.relation.format.page_layout import PageLayout


def row_ends(batch: pa.RecordBatch, layout: PageLayout) -> Int64s:
    """Return, for each i, the bytes of rows 0..i in a page, without the padding of buffers."""
    bits = np.zeros(batch.num_rows + 1, np.int64)
    fixed = 0
    for column, array in zip(layout.columns, batch.columns, strict=True):
        if column.kind in ("bits", "fixed"):
            fixed += (1 if column.kind == "bits" else 8 * column.width) + (array.null_count > 0)
        else:
            bits += _bits_before(array)
    bits += np.arange(bits.size) * fixed
    return (bits[1:] + 7) // 8


def value_bytes(array: pa.Array) -> Int64s:
    """Return the bytes of each value of an array, rounded up."""
    return (np.diff(_bits_before(array)) + 7) // 8


def count_offsets(type_: pa.DataType) -> int:
    """Count the offset buffers of a column; each holds one more offset than there are values."""
    own = _has_offsets(type_) or _is_list(type_)
    return own + sum(count_offsets(type_.field(i).type) for i in range(type_.num_fields))


def _bits_before(array: pa.Array) -> Int64s:
    """Return the bits of the first i values, for each i from 0 to the length of the array."""
    type_, rows = array.type, np.arange(len(array) + 1)
    if pa.types.is_null(type_) or len(array) == 0:
        return np.zeros(rows.size, np.int64)
    bits = rows * int(array.null_count > 0)
    if pa.types.is_struct(type_) or pa.types.is_union(type_):
        bits += rows * 8 * int(pa.types.is_union(type_))  # its type codes
        for i in range(type_.num_fields):
            bits += _bits_before(array.field(i))
    elif pa.types.is_fixed_size_list(type_):
        bits += _between(_bits_before(array.values), (rows + array.offset) * type_.list_size)
    elif _is_list(type_):
        offsets = array.offsets.to_numpy()
        bits += rows * 8 * offsets.itemsize + _between(_bits_before(array.values), offsets)
    elif _has_offsets(type_):
        width = 4 if pa.types.is_string(type_) or pa.types.is_binary(type_) else 8
        offsets = np.frombuffer(array.buffers()[1], f"i{width}", rows.size, array.offset * width)
        bits += rows * 8 * width + 8 * (offsets.astype(np.int64) - offsets[0])
    else:
        bits += rows * type_.bit_width
    return bits


def _between(before: Int64s, offsets: npt.NDArray[np.integer[Any]]) -> Int64s:
    ends: Int64s = before[offsets]
    ends -= ends[0]
    return ends


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_map(type_))


def _has_offsets(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(type_) or t.is_binary(type_) or t.is_large_string(type_) or t.is_large_binary(type_))


def row_sizes(batch: pa.RecordBatch) -> Int64s:
    """Return the bytes of each row of plain types, rounded up; columns of other types count their mean per row."""
    fixed = np.int64(fixed_row_bytes(batch.schema))
    if is_regular(batch.schema):
        return np.broadcast_to(fixed, batch.num_rows)  # allocates no memory per row
    sizes = np.full(batch.num_rows, fixed)
    for column in batch.columns:
        width = _offset_bytes(column.type)
        if width:
            offsets = np.frombuffer(
                column.buffers()[1], np.int32 if width == 4 else np.int64, len(column) + 1, column.offset * width
            )
            sizes += np.diff(offsets)
        elif _is_plain_nested(column.type):
            sizes += value_bytes(column)
        elif _is_irregular(column.type):
            sizes += -(-column.nbytes // max(len(column), 1))
    return sizes


def widest(sizes: Int64s) -> int:
    """Return the largest of the sizes from `row_sizes`, or 0 if there are none."""
    if sizes.size == 0:
        return 0
    return int(sizes[0] if sizes.strides == (0,) else sizes.max())  # a broadcast array holds one value


def add_sizes(one: Int64s, other: Int64s) -> Int64s:
    """Add two arrays of row sizes; the sum of two broadcast arrays is again one, without memory per row."""
    if one.size and one.strides == other.strides == (0,):
        return np.broadcast_to(one[0] + other[0], one.size)
    return one + other


def carried_sizes(batch: pa.RecordBatch, parts: list[Int64s]) -> Int64s:
    """Return the sizes of a batch's rows from the known sizes of its parts, without memory per row if all are equal."""
    return row_sizes(batch) if is_regular(batch.schema) else np.concatenate(parts)


def is_regular(schema: pa.Schema) -> bool:
    """True if all rows have the same size."""
    return not any(_offset_bytes(type_) or _is_irregular(type_) for type_ in schema.types)


def is_binary(type_: pa.DataType) -> bool:
    """True if the type is strings or binaries of variable length, stored with offsets."""
    return _offset_bytes(type_) > 0


def fixed_row_bytes(schema: pa.Schema) -> int:
    """Return the bytes of every row regardless of its values: widths, offsets, and a validity byte per column."""
    return sum(1 + _fixed_bytes(field.type) for field in schema)


def _fixed_bytes(type_: pa.DataType) -> int:
    if _offset_bytes(type_):
        return _offset_bytes(type_)
    if _is_irregular(type_):
        return 8
    return 0 if pa.types.is_null(type_) else -(-type_.bit_width // 8)


def _offset_bytes(type_: pa.DataType) -> int:
    t = pa.types
    if t.is_string(type_) or t.is_binary(type_):
        return 4
    return 8 if t.is_large_string(type_) or t.is_large_binary(type_) else 0


def _is_plain_nested(type_: pa.DataType) -> bool:
    """True if the type is nested and contains only types with plain buffers."""
    t = pa.types
    plain = t.is_struct(type_) or t.is_list(type_) or t.is_large_list(type_) or t.is_map(type_) or t.is_union(type_)
    if not plain:
        return bool(t.is_fixed_size_list(type_)) and _is_plain_nested(pa.struct([type_.value_field]))
    children = [type_.field(i).type for i in range(type_.num_fields)]
    return all(_is_plain_nested(child) if t.is_nested(child) else not _is_irregular(child) for child in children)


def _is_irregular(type_: pa.DataType) -> bool:
    """True if the type has neither a fixed width nor plain offsets: nested types, views, dictionaries, extensions."""
    t = pa.types
    if t.is_null(type_) or _offset_bytes(type_):
        return False
    view = type_ in (pa.string_view(), pa.binary_view())
    return bool(view or t.is_nested(type_) or t.is_dictionary(type_) or isinstance(type_, pa.BaseExtensionType))
