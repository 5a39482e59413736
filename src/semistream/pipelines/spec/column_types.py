"""Column types of a pipeline file: Spark's type names, mapped to Arrow types."""

from __future__ import annotations

import re

import pyarrow as pa

from semistream.errors import InvalidArgument, shortened

_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\)")
_MOST_DIGITS = 38


def column_type(name: str) -> pa.DataType:
    """Return the Arrow type for a Spark type name.

    >>> column_type("bigint"), column_type("decimal(10, 2)")
    (DataType(int64), Decimal128Type(decimal128(10, 2)))
    """
    wanted = name.strip().lower()
    if wanted in _TYPES:
        return _TYPES[wanted]
    if found := _DECIMAL.fullmatch(wanted):
        digits, scale = int(found[1]), int(found[2] or 0)
        if 1 <= digits <= _MOST_DIGITS and scale <= digits:
            return pa.decimal128(digits, scale)
    raise InvalidArgument(
        f"{shortened(name)} is not a column type; use one of {', '.join(_TYPES)} or decimal(digits, scale) with "
        f"at most {_MOST_DIGITS} digits."
    )


def type_name(type_: pa.DataType) -> str:
    """Return Spark's name for an Arrow type.

    >>> type_name(pa.decimal128(10, 2)), type_name(pa.int64())
    ('decimal(10,2)', 'bigint')
    """
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    name = next((name for name, known in _TYPES.items() if known == type_), None)
    if name is None:
        raise InvalidArgument(
            f"{type_} is not a type of pipeline files, which support {', '.join(_TYPES)} and decimals of up to "
            f"{_MOST_DIGITS} digits. Build the relation with the column cast to one of these."
        )
    return name
