"""Rules of join-key types: the Arrow types allowed, the pairs that compare without loss, and Spark's hash of each."""

from __future__ import annotations

from enum import Enum

import pyarrow as pa
from pyarrow import types as is_a

UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Resolution of Arrow's time units."""

LONG_DIGITS = 18
"""Decimal digits that always fit a signed 64-bit integer; Spark uses the same limit."""

SUPPORTED = (
    "integers, booleans, dates, times, timestamps, durations, decimals, floats, strings, binaries, "
    "and dictionaries of these"
)
"""The allowed key types, as quoted in error messages."""


class Family(Enum):
    """A group of types whose values can equal each other; keys of different families never match."""

    INTEGER = "integer"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    DECIMAL = "decimal"
    FLOAT = "float"
    STRING = "string"
    BINARY = "binary"
    NULL = "null"
    NESTED = "lists and structs"


class HashAs(Enum):
    """The input that Spark's ``xxhash64`` hashes for a value of an ordered type."""

    INT = "hashInt of the code"
    LONG = "hashLong of the code"
    FLOAT = "hashInt of floatToIntBits"
    DOUBLE = "hashLong of doubleToLongBits"


_EXAMPLES = {
    Family.INTEGER: [pa.int8(), pa.int16(), pa.int32(), pa.int64(),
                     pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()],
    Family.BOOLEAN: [pa.bool_()],
    Family.DATE: [pa.date32(), pa.date64()],
    Family.TIME: [pa.time32("s"), pa.time64("us")],
    Family.TIMESTAMP: [pa.timestamp("us")],
    Family.DURATION: [pa.duration("us")],
    Family.DECIMAL: [pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)],
    Family.FLOAT: [pa.float16(), pa.float32(), pa.float64()],
    Family.STRING: [pa.string(), pa.large_string(), pa.string_view()],
    Family.NULL: [pa.null()],
    Family.BINARY: [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)],
}  # fmt: skip
# Keyed by type id, so that the check of every column of every batch costs one look-up.
_FAMILY = {type_.id: family for family, examples in _EXAMPLES.items() for type_ in examples}


_LISTS = {type_.id for type_ in (pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 1))}


def value_type(type_: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary type; return any other type unchanged."""
    return type_.value_type if is_a.is_dictionary(type_) else type_


def family_of(type_: pa.DataType) -> Family | None:
    """Return the family of a key type, or None for a type that cannot be a key.

    >>> family_of(pa.dictionary(pa.int32(), pa.string())), family_of(pa.month_day_nano_interval())
    (<Family.STRING: 'string'>, None)
    """
    type_ = value_type(type_)
    return _FAMILY.get(type_.id) or (Family.NESTED if _is_nested_key(type_) else None)


def _is_nested_key(type_: pa.DataType) -> bool:
    """Return True for lists and structs of values that can be keys."""
    if not is_a.is_struct(type_) and type_.id not in _LISTS:
        return False
    return all(family_of(type_.field(i).type) is not None for i in range(type_.num_fields))


def comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """True if values of the two types belong to one family, or are numbers, and can be compared without loss.

    Integers compare with decimals and floats as the numbers they are. Decimals do not compare with floats: 0.1 is no
    float. A column of the type null has only nulls, which equal nothing of any type.

    >>> comparable(pa.int8(), pa.float64()), comparable(pa.decimal128(5, 2), pa.float64())
    (True, False)
    """
    family, other = family_of(left), family_of(right)
    if family is None or other is None:
        return False
    if Family.NULL in (family, other):
        return True
    if family is not other:
        return {family, other} in ({Family.INTEGER, Family.DECIMAL}, {Family.INTEGER, Family.FLOAT})
    left, right = value_type(left), value_type(right)
    if family is Family.NESTED:
        own, others = ([type_.field(i) for i in range(type_.num_fields)] for type_ in (left, right))
        structs = is_a.is_struct(left), is_a.is_struct(right)
        named = not structs[0] or [field.name for field in own] == [field.name for field in others]
        parts = zip(own, others, strict=False)
        return structs[0] == structs[1] and named and all(comparable(a.type, b.type) for a, b in parts)
    if family is Family.TIMESTAMP:
        # A zoned timestamp is an instant; a naive one is the reading of an unknown clock.
        return (left.tz is None) == (right.tz is None)
    return True


def has_order(type_: pa.DataType) -> bool:
    """True if a single key column of this type gets codes that sort as its values do."""
    family, values = family_of(type_), value_type(type_)
    if family is Family.DECIMAL:
        return bool(values.precision <= LONG_DIGITS)
    return family is not None and family not in (Family.STRING, Family.BINARY, Family.NESTED)


def is_own_code(type_: pa.DataType) -> bool:
    """True if the Arrow data buffer of a column of this type already holds its codes."""
    return bool(
        is_a.is_int64(type_)
        or is_a.is_timestamp(type_)
        or is_a.is_duration(type_)
        or (is_a.is_time64(type_) and type_.unit == "ns")
    )


def hashed_as(type_: pa.DataType) -> HashAs:
    """Return the way Spark hashes a value of this ordered type.

    Types unknown to Spark are hashed as the nearest type it has: float16 as float; the code of unsigned integers,
    times, durations and timestamps of any unit as long. (Spark's own timestamp, TIME and day-time interval are the
    special cases us, ns and us of these.)
    """
    family, values = family_of(type_), value_type(type_)
    if family is Family.FLOAT:
        return HashAs.DOUBLE if is_a.is_float64(values) else HashAs.FLOAT
    small = is_a.is_int8(values) or is_a.is_int16(values) or is_a.is_int32(values)
    return HashAs.INT if small or family in (Family.BOOLEAN, Family.DATE) else HashAs.LONG
