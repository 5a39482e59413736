"""Map Arrow types to types that Spark and Delta support, each wide enough for every value of the original."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as is_a

from semistream.errors import InvalidArgument, RelationError

_SPARK_DIGITS = 38  # maximum precision of a Spark decimal
_SAME = (
    is_a.is_null, is_a.is_boolean, is_a.is_int8, is_a.is_int16, is_a.is_int32, is_a.is_int64, is_a.is_float32,
    is_a.is_float64, is_a.is_string, is_a.is_large_string, is_a.is_binary, is_a.is_large_binary, is_a.is_date32,
)  # fmt: skip
_WIDER = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.date64(): pa.date32(), pa.string_view(): pa.string(), pa.binary_view(): pa.binary(),
}  # fmt: skip


def carried_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with every type replaced by one that Spark supports and that holds all of its values.

    Raise `InvalidArgument` for a column whose type Spark cannot represent.

    >>> carried_schema(pa.schema([("n", pa.uint32()), ("at", pa.timestamp("ms"))])).types
    [DataType(int64), TimestampType(timestamp[us])]
    """
    return pa.schema([field.with_type(_carried(field.type, field.name)) for field in schema])


def convert_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast the columns of a batch, by position, to the names and types of ``schema``; refuse any loss of values."""
    columns = [_convert(column, field) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _convert(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise RelationError(
            f"column {field.name!r} is {column.type} and holds a value that does not fit Spark's {field.type} "
            f"({error}). Build the relation with the column cast, or leave it out with columns=[...]."
        ) from error


def _carried(type_: pa.DataType, column: str) -> pa.DataType:
    if any(test(type_) for test in _SAME):
        return type_
    if type_ in _WIDER:
        return _WIDER[type_]
    if is_a.is_time(type_):
        return pa.time64("ns")
    if is_a.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if is_a.is_duration(type_):
        return pa.duration("us")
    if is_a.is_fixed_size_binary(type_):
        return pa.binary()
    if is_a.is_dictionary(type_):
        return _carried(type_.value_type, column)
    if is_a.is_decimal(type_):
        digits = max(type_.precision, type_.scale) - min(type_.scale, 0)
        if digits <= _SPARK_DIGITS:
            return pa.decimal128(digits, max(type_.scale, 0))
    if is_a.is_map(type_):
        return pa.map_(_carried_field(type_.key_field, column), _carried_field(type_.item_field, column))
    if is_a.is_struct(type_):
        return pa.struct([_carried_field(type_.field(i), column) for i in range(type_.num_fields)])
    if is_a.is_list(type_) or is_a.is_large_list(type_) or is_a.is_fixed_size_list(type_):
        return pa.list_(_carried_field(type_.value_field, column))
    raise InvalidArgument(
        f"column {column!r} of the relation has type {type_}, and no Spark type holds all its values. "
        "Leave it out with columns=[...], or build the relation with the column cast."
    )


def _carried_field(field: pa.Field, column: str) -> pa.Field:
    return field.with_type(_carried(field.type, column))
