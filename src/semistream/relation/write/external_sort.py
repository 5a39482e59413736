"""Out-of-core sort of record batches by a 64-bit code, with DuckDB.

DuckDB has fewer types than Arrow. Each column passes through the sort in a type that DuckDB keeps without loss, and is
converted back afterwards. Fixed-width types, nested or not, pass as integers or bytes of the same width, unions as
structs, and the null type as booleans; all other types pass unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import duckdb
import pyarrow as pa

from semistream.errors import RelationError
from semistream.keys.nested_types import map_children
from semistream.keys.plain_types import converted, empty_batch

_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_MEMORY_PER_THREAD = 125 * 10**6  # with less, DuckDB's threads starve each other of blocks
_MEMORY_ROWS = 3 * 122_880  # DuckDB sorts at least 122,880 rows at a time, whatever their size
_OUTPUT_ROWS = 1 << 16
_OUTPUT_SHARE = 16  # a batch of sorted rows uses at most about 1/16 of the memory


def sort_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, by: str, memory_bytes: int, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """Sort the rows of ``batches`` by the 64-bit column ``by``, ascending, within about ``memory_bytes``.

    The sort spills to the folder ``scratch``, which must exist; DuckDB removes its files at the end. An error raised by
    ``batches`` propagates unchanged.
    """
    rows = iter(batches)
    first = next(rows, empty_batch(schema))
    row_bytes = first.nbytes // max(first.num_rows, 1) + 1
    carriers = [_Carrier.of(field) for field in schema]
    carried = pa.schema([pa.field(f"c{i}", carrier.carried) for i, carrier in enumerate(carriers)])
    raised: list[BaseException] = []
    incoming = pa.RecordBatchReader.from_batches(carried, _carry(chain([first], rows), carriers, carried, raised))
    connection = duckdb.connect(
        config={
            "memory_limit": f"{memory_bytes // 1024}KiB",
            "threads": min(os.cpu_count() or 1, max(memory_bytes // _MEMORY_PER_THREAD, 1)),
            "temp_directory": str(scratch),
            "preserve_insertion_order": False,
        }
    )
    connection.execute("SET enable_progress_bar = false")  # it would overwrite the output of commands
    try:
        connection.register("incoming", incoming)
        ordered = connection.sql(f"SELECT * FROM incoming ORDER BY c{schema.get_field_index(by)}")
        for batch in ordered.to_arrow_reader(min(_OUTPUT_ROWS, memory_bytes // _OUTPUT_SHARE // row_bytes + 1)):
            columns = [carrier.restore(column) for carrier, column in zip(carriers, batch.columns, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except (duckdb.Error, OSError) as error:
        if raised:
            raise raised[0] from None
        reason = str(error).partition("\n")[0]
        raise RelationError(
            f"the sort failed: {reason}. It had {memory_bytes} bytes of memory and the disk of {scratch.parent}. Free "
            f"disk space there, or raise memory: rows of about {row_bytes} bytes need {_MEMORY_ROWS * row_bytes} bytes."
        ) from error
    finally:
        connection.close()


def _carry(
    batches: Iterable[pa.RecordBatch], carriers: list[_Carrier], carried: pa.Schema, raised: list[BaseException]
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            columns = [carrier.carry(column) for carrier, column in zip(carriers, batch.columns, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=carried)
    except BaseException as error:
        raised.append(error)  # DuckDB passes on only its text
        raise


@dataclass(frozen=True)
class _Carrier:
    """Conversion of a column for DuckDB.

    Unions and nulls change to ``known``; buffers are viewed as type ``raw``, then cast to ``carried`` (wide values).
    """

    own: pa.DataType
    known: pa.DataType
    raw: pa.DataType
    carried: pa.DataType

    @classmethod
    def of(cls, field: pa.Field) -> _Carrier:
        known = _known(field.type)
        raw = _raw(known)
        return cls(field.type, known, raw, _carried(raw))

    def carry(self, column: pa.Array) -> pa.Array:
        return converted(column, self.known).view(self.raw).cast(self.carried)

    def restore(self, column: pa.Array) -> pa.Array:
        return converted(column.cast(self.raw).view(self.known), self.own)


def _known(type_: pa.DataType) -> pa.DataType:
    """Return the type with structs for unions and booleans for nulls, as `converted` makes them."""
    if pa.types.is_union(type_):
        children = [(f"f{i}", _known(type_.field(i).type)) for i in range(type_.num_fields)]
        return pa.struct([("code", pa.int8()), *children])
    return pa.bool_() if pa.types.is_null(type_) else map_children(type_, _known)


def _raw(type_: pa.DataType) -> pa.DataType:
    """Return a type with the same buffers, made only of integers, floats, booleans, strings and bytes."""
    t = pa.types
    is_bytes = t.is_string(type_) or t.is_large_string(type_) or t.is_binary(type_) or t.is_large_binary(type_)
    if is_bytes or t.is_integer(type_) or t.is_boolean(type_) or t.is_float32(type_) or t.is_float64(type_):
        return type_
    if t.is_nested(type_):
        return map_children(type_, _raw, number_fields=True)  # DuckDB rejects names that differ only in case
    if t.is_fixed_size_binary(type_):
        return pa.binary(type_.byte_width)
    return _INTEGERS.get(type_.bit_width, pa.binary(type_.bit_width // 8))


def _carried(raw: pa.DataType) -> pa.DataType:
    return pa.binary() if pa.types.is_fixed_size_binary(raw) else map_children(raw, _carried)
