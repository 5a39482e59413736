"""Row codes: rows of several tables encoded as integers, so that equal rows have equal codes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import InvalidArgument, KeyTypeError
from semistream.kernels.array_types import Int64s

Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray | npt.NDArray[Any]
NULL = -1


def row_codes(*tables: Rows, nulls_match: bool = False) -> list[Int64s]:
    """Return a code for each row of each table, from 0 without gaps; rows have the same code exactly if they are equal.

    NaN equals itself and -0.0 equals 0.0, as everywhere in semistream. A null equals nothing, and a row with a null
    has code -1. With ``nulls_match`` nulls are equal, as comparing multisets of rows requires. A table is an Arrow
    table or batch, or a single Arrow or NumPy column.

    >>> row_codes(np.array([7, 5, 7]), np.array([5, 9]))
    [array([0, 1, 0]), array([1, 2])]
    """
    columns = [_columns(table) for table in tables]
    widths = {len(each) for each in columns}
    if len(widths) > 1:
        raise InvalidArgument(f"The tables have {sorted(widths)} columns; give tables with the same columns.")
    rows = [len(table) for table in tables]
    codes = np.zeros(sum(rows), dtype=np.int64)
    has_null = np.zeros(codes.size, dtype=np.bool_)
    for same in zip(*columns, strict=True):
        values, null = _encode(same)
        has_null |= null
        codes = _dense(codes * (values.max(initial=0) + 1) + values)
    if not nulls_match:
        codes[has_null] = NULL
    return np.split(codes, np.cumsum(rows)[:-1])


def _columns(table: Rows) -> list[pa.ChunkedArray]:
    if isinstance(table, pa.Table):
        columns = table.columns
    elif isinstance(table, pa.RecordBatch):
        columns = [pa.chunked_array([column]) for column in table.columns]
    elif isinstance(table, pa.ChunkedArray):
        columns = [table]
    else:
        try:
            columns = [pa.chunked_array([table if isinstance(table, pa.Array) else pa.array(table)])]
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as refused:
            raise InvalidArgument(
                f"Rows are {type(table).__name__}; give a column of Arrow or NumPy: {refused}"
            ) from None
    return [_plain(column) for column in columns]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode dictionaries, which may differ between chunks and hold a value twice."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _encode(columns: tuple[pa.ChunkedArray, ...]) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Encode stacked columns from 0, nulls with a code of their own; return the codes and a mask of the nulls."""
    kinds = {str(column.type): column.type for column in columns}
    if len(kinds) > 1:
        raise KeyTypeError(f"Columns to compare have the types {', '.join(kinds)}; cast them to one of these.")
    (kind,) = kinds.values()
    array = pa.concat_arrays([pa.array([], kind), *(chunk for column in columns for chunk in column.chunks)])
    null = np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
    if pa.types.is_floating(kind):
        values = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 + 0.0 is 0.0
        indices = _dense(np.where(np.isnan(values), np.nan, values))
    else:
        try:
            indices = array.dictionary_encode().indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        except pa.ArrowNotImplementedError:
            raise KeyTypeError(f"Values of type {kind} cannot be compared here; give their parts as columns.") from None
    indices[null] = indices.max(initial=-1) + 1
    return indices, null


def _dense(values: npt.NDArray[Any]) -> Int64s:
    """Number the values from 0 in the order of their first appearance."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.empty(first.size, dtype=np.int64)
    order[np.argsort(first)] = np.arange(first.size)
    return order[inverse]
