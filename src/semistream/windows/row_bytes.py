"""Bytes that rows take, row by row: what a memory in bytes charges for a tuple's columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as is_a

Sizes = npt.NDArray[np.int64]


def row_bytes(batch: pa.RecordBatch) -> Sizes:
    """Bytes of each row, as Arrow stores it: the same whatever batch the row is in.

    >>> row_bytes(pa.record_batch({"k": pa.array([1, 2]), "s": ["a", "long"]})).tolist()
    [15, 18]
    """
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        total += _sizes(column)
    return total


def _sizes(array: pa.Array) -> Sizes | int:
    """Bytes of each value: with its bit of validity, counted as a byte, and its offsets."""
    type_ = array.type
    if is_a.is_dictionary(type_):
        return 1 + int(type_.index_type.bit_width) // 8
    if is_a.is_null(type_):
        return 1
    if is_a.is_boolean(type_):
        return 2
    if _is_text(type_):
        lengths = pc.fill_null(pc.binary_length(_with_offsets(array)), 0).to_numpy(zero_copy_only=False)
        return 1 + _offset_bytes(type_) + np.asarray(lengths, np.int64)
    if is_a.is_struct(type_):
        fields = [np.asarray(_sizes(array.field(i)), np.int64) for i in range(type_.num_fields)]
        return np.asarray(sum(fields, np.int64(1)), np.int64)
    if is_a.is_nested(type_):  # lists, maps and views of lists: what their values take, by the list they belong to
        lists = array.cast(pa.large_list(pa.struct(list(type_)))) if is_a.is_map(type_) else array
        lists = lists.cast(pa.large_list(lists.type.value_type))
        parents = np.asarray(pc.list_parent_indices(lists), np.int64)
        sizes = np.broadcast_to(np.asarray(_sizes(lists.flatten()), np.int64), parents.size)
        return 9 + np.bincount(parents, weights=sizes, minlength=len(array)).astype(np.int64)
    return 1 + -(-int(type_.bit_width) // 8)


def _is_text(type_: pa.DataType) -> bool:
    views = is_a.is_string_view(type_) or is_a.is_binary_view(type_)
    small = is_a.is_string(type_) or is_a.is_binary(type_)
    return bool(views or small or is_a.is_large_string(type_) or is_a.is_large_binary(type_))


def _with_offsets(array: pa.Array) -> pa.Array:
    views = is_a.is_string_view(array.type) or is_a.is_binary_view(array.type)
    return array.cast(pa.large_binary()) if views else array


def _offset_bytes(type_: pa.DataType) -> int:
    if is_a.is_string_view(type_) or is_a.is_binary_view(type_):
        return 16
    large = is_a.is_large_string(type_) or is_a.is_large_binary(type_) or is_a.is_large_list(type_)
    return 8 if large else 4
