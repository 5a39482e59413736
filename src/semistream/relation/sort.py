"""Sort record batches by a 64-bit code, out of core, by DuckDB.

DuckDB has fewer types than Arrow. Columns go through the sort in a type that DuckDB carries without loss and come
back as what they were: fixed-width types as integers or bytes of the same width, the rest as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidArgument

_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_OUTPUT_ROWS = 1 << 16


def sort_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, by: str, memory_bytes: int, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """The rows of ``batches`` in ascending order of the 64-bit column ``by``, within about ``memory_bytes``.

    What does not fit goes to the folder ``scratch``, which must exist; DuckDB removes its files when it is done.
    """
    carried = pa.schema([pa.field(f"c{i}", _carrier(f.type, f.name)) for i, f in enumerate(schema)])
    incoming = pa.RecordBatchReader.from_batches(carried, (_carry(b, carried) for b in batches))
    connection = duckdb.connect(
        config={
            "memory_limit": f"{memory_bytes // 1024}KiB",
            "threads": os.cpu_count() or 1,
            "temp_directory": str(scratch),
            "preserve_insertion_order": False,
        }
    )
    try:
        connection.register("incoming", incoming)
        ordered = connection.sql(f"SELECT * FROM incoming ORDER BY c{schema.get_field_index(by)}")
        for batch in ordered.to_arrow_reader(_OUTPUT_ROWS):
            yield _restore(batch, schema)
    finally:
        connection.close()


def _carrier(type_: pa.DataType, name: str) -> pa.DataType:
    """The type in which a column passes through DuckDB."""
    if pa.types.is_null(type_):
        return pa.bool_()
    if pa.types.is_nested(type_):
        _require_plain_leaves(type_, name)
        return type_
    if pa.types.is_fixed_size_binary(type_) or type_.num_buffers != 2:
        return pa.binary() if pa.types.is_fixed_size_binary(type_) else type_
    if pa.types.is_boolean(type_) or (pa.types.is_floating(type_) and type_.bit_width > 16):
        return type_
    if type_.bit_width in _INTEGERS:
        return type_ if pa.types.is_integer(type_) else _INTEGERS[type_.bit_width]
    return pa.binary()


def _require_plain_leaves(type_: pa.DataType, name: str) -> None:
    for i in range(type_.num_fields):
        child = type_.field(i).type
        if pa.types.is_nested(child):
            _require_plain_leaves(child, name)
        elif not _is_plain(child):
            raise InvalidArgument(
                f"column {name!r} nests the type {child}, which the sort cannot carry. Cast it before building: "
                "times and timestamps to microseconds, decimals to at most 38 digits, dictionaries to their values."
            )


def _is_plain(type_: pa.DataType) -> bool:
    t = pa.types
    microseconds = (t.is_time(type_) or t.is_timestamp(type_)) and type_.unit == "us"
    return bool(
        microseconds
        or t.is_boolean(type_)
        or t.is_integer(type_)
        or t.is_float32(type_)
        or t.is_float64(type_)
        or t.is_date32(type_)
        or t.is_string(type_)
        or t.is_large_string(type_)
        or t.is_binary(type_)
        or t.is_large_binary(type_)
        or t.is_decimal128(type_)
    )


def _carry(batch: pa.RecordBatch, carried: pa.Schema) -> pa.RecordBatch:
    columns = [_convert(column, field.type) for column, field in zip(batch.columns, carried, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=carried)


def _restore(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_convert(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _convert(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Between a type and its carrier, either way: the same bytes under another name."""
    if column.type == target:
        return column
    if pa.types.is_null(column.type) or pa.types.is_null(target):
        return pa.nulls(len(column), target)
    wide = [t for t in (column.type, target) if pa.types.is_fixed_size_binary(t) or _is_wide(t)]
    if wide:
        width = wide[0].bit_width // 8
        if pa.types.is_binary(target):
            return column.view(pa.binary(width)).cast(target)
        return column.cast(pa.binary(width)).view(target)
    if column.type in _INTEGERS.values() or target in _INTEGERS.values():
        return column.view(target)
    return pc.cast(column, target)


def _is_wide(type_: pa.DataType) -> bool:
    return not pa.types.is_nested(type_) and type_.num_buffers == 2 and type_.bit_width > 64
