"""How many bytes rows take: what pages are cut by, and what a budget is charged for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.kernels.types import Int64s
from semistream.relation.page_layout import PageLayout


def row_ends(batch: pa.RecordBatch, layout: PageLayout) -> Int64s:
    """Bytes that rows 0..i take in a page, for each i, apart from the padding of buffers."""
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
    """Bytes that each value of an array takes, rounded up."""
    return (np.diff(_bits_before(array)) + 7) // 8


def count_offsets(type_: pa.DataType) -> int:
    """Buffers of offsets that a column has: each holds one offset more than there are values."""
    own = _has_offsets(type_) or _is_list(type_)
    return own + sum(count_offsets(type_.field(i).type) for i in range(type_.num_fields))


def _bits_before(array: pa.Array) -> Int64s:
    """Bits that the first i values take, for each i from 0 to their number."""
    type_, rows = array.type, np.arange(len(array) + 1)
    if pa.types.is_null(type_) or len(array) == 0:
        return np.zeros(rows.size, np.int64)
    bits = rows * int(array.null_count > 0)
    if pa.types.is_struct(type_):
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
