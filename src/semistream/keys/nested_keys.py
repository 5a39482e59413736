"""Keys that are lists or structs: each value as bytes that are the same exactly if the values are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as is_a

from semistream.keys.key_types import Family, family_of, value_type
from semistream.keys.values import ByteStrings, Codes, KeyValues, Mask, OrderedValues, WideDecimals, both

Exact = Callable[[pa.Array, pa.DataType], KeyValues]
"""Function that converts values exactly to a type."""
_HEADER = np.dtype([("valid", "u1"), ("length", "<i8")])
_NOTHING = pa.scalar(b"", pa.large_binary())


def nested_bytes(array: pa.Array, like: pa.DataType, leaf: Exact) -> tuple[pa.Array, Mask | None]:
    """Return lists or structs as bytes without nulls, and a mask of those that the type ``like`` can hold (None: all).

    Within them, null equals null. ``leaf`` converts the values at the bottom exactly, to ``like``'s type there.
    """
    array = array.dictionary.take(array.indices) if is_a.is_dictionary(array.type) else array
    like = value_type(like)
    if is_a.is_null(array.type):
        array = pa.nulls(len(array), like)
    if family_of(like) is not Family.NESTED:
        return _leaf_bytes(array, leaf(array, like))
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    if is_a.is_struct(like):
        lengths = np.zeros(len(array), np.int64)
        parts = [nested_bytes(array.field(i), like.field(i).type, leaf) for i in range(like.num_fields)]
        content = _joined([part for part, _ in parts], len(array))
        fits = None
        for _, each in parts:
            fits = both(fits, each)
    else:
        begins, lengths, values = _lists(array)
        part, each = nested_bytes(values, like.value_type, leaf)
        ends = np.concatenate([begins, begins[-1:] + lengths[-1:]]) if len(array) else np.zeros(1, np.int64)
        content = pc.binary_join(pa.LargeListArray.from_arrays(pa.array(ends), part), _NOTHING)
        fits = None
        if each is not None:
            misfits = np.concatenate([np.zeros(1, np.int64), np.cumsum(~each)])
            fits = misfits[ends[1:]] == misfits[ends[:-1]]
    fits = None if fits is None else fits | ~valid
    content = pc.if_else(pa.array(valid), content, _NOTHING)
    return _joined([_headers(valid, lengths), content], len(array)), fits


def _lists(
    array: pa.Array,
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]], pa.Array]:
    """Return where each list begins among the values, its length, and the values."""
    if is_a.is_fixed_size_list(array.type):
        size = array.type.list_size
        begins = np.arange(len(array), dtype=np.int64) * size
        return begins, np.full(len(array), size), array.values.slice(array.offset * size, len(array) * size)
    offsets = array.offsets.to_numpy().astype(np.int64)
    first = int(offsets[0])
    return offsets[:-1] - first, np.diff(offsets), array.values.slice(first, int(offsets[-1]) - first)


def _leaf_bytes(array: pa.Array, values: KeyValues) -> tuple[pa.Array, Mask | None]:
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    fits = None if values.possible is None else values.possible | ~valid
    if isinstance(values, OrderedValues):
        return _headers(valid, values.codes), fits
    if isinstance(values, WideDecimals):
        words = np.where(valid[:, None], values.words, 0).astype(np.uint32)
        return _joined([_headers(valid, np.zeros(len(array), np.int64)), _fixed(words)], len(array)), fits
    assert isinstance(values, ByteStrings)
    content = pc.fill_null(values.array.cast(pa.large_binary()), _NOTHING)
    lengths = pc.binary_length(content).to_numpy(zero_copy_only=False)
    return _joined([_headers(valid, lengths), content], len(array)), fits


def _headers(valid: Mask, lengths: Codes) -> pa.Array:
    """Return what tells a null from a value, and where a value ends among others."""
    headers = np.zeros(valid.size, _HEADER)
    headers["valid"] = valid
    headers["length"] = np.where(valid, lengths, 0)
    return _fixed(headers)


def _fixed(rows: npt.NDArray[Any]) -> pa.Array:
    """Return the bytes of each row of an array."""
    width = rows.nbytes // rows.shape[0] if rows.shape[0] else 1
    array = pa.Array.from_buffers(pa.binary(width), rows.shape[0], [None, pa.py_buffer(np.ascontiguousarray(rows))])
    return array.cast(pa.large_binary())


def _joined(parts: list[pa.Array], rows: int) -> pa.Array:
    """Return the bytes of several columns one after the other, row by row."""
    return pc.binary_join_element_wise(*parts, _NOTHING) if parts else pa.repeat(_NOTHING, rows)
