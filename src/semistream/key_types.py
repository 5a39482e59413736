"""Which Arrow types can be join keys, which pairs of them compare without loss, and how Spark hashes each."""

from __future__ import annotations

from enum import Enum

import pyarrow as pa
from pyarrow import types as is_a

UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Resolution of Arrow's time units."""

LONG_DIGITS = 18
"""Decimal digits that always fit a signed 64-bit integer; Spark draws the same line."""

SUPPORTED = (
    "integers, booleans, dates, times, timestamps, durations, decimals, floats, strings, binaries, "
    "and dictionaries of these"
)
"""The key types, for messages."""


class Family(Enum):
    """Types whose values can equal each other: a key of one family never matches a key of another."""

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


class HashAs(Enum):
    """What Spark's ``xxhash64`` feeds to the hash for a value of an ordered type."""

    INT = "hashInt of the code"
    LONG = "hashLong of the code"
    FLOAT = "hashInt of floatToIntBits"
    DOUBLE = "hashLong of doubleToLongBits"


_TESTS = (
    (is_a.is_integer, Family.INTEGER),
    (is_a.is_boolean, Family.BOOLEAN),
    (is_a.is_date, Family.DATE),
    (is_a.is_time, Family.TIME),
    (is_a.is_timestamp, Family.TIMESTAMP),
    (is_a.is_duration, Family.DURATION),
    (is_a.is_decimal, Family.DECIMAL),
    (is_a.is_floating, Family.FLOAT),
    (is_a.is_string, Family.STRING),
    (is_a.is_large_string, Family.STRING),
    (is_a.is_string_view, Family.STRING),
    (is_a.is_binary, Family.BINARY),
    (is_a.is_large_binary, Family.BINARY),
    (is_a.is_binary_view, Family.BINARY),
    (is_a.is_fixed_size_binary, Family.BINARY),
)


def value_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values: what a dictionary encodes, and any other type itself."""
    return type_.value_type if is_a.is_dictionary(type_) else type_


def family_of(type_: pa.DataType) -> Family | None:
    """The family of a key type, None for a type that cannot be a key.

    >>> family_of(pa.dictionary(pa.int32(), pa.string())), family_of(pa.null())
    (<Family.STRING: 'string'>, None)
    """
    values = value_type(type_)
    return next((family for test, family in _TESTS if test(values)), None)


def comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of the two types can be compared for equality without loss, by one family's rule.

    >>> comparable(pa.int8(), pa.uint32()), comparable(pa.int8(), pa.uint64())
    (True, False)
    """
    family = family_of(left)
    if family is None or family is not family_of(right):
        return False
    left, right = value_type(left), value_type(right)
    if family is Family.INTEGER:
        # No 64-bit integer type holds the values of both.
        signed = is_a.is_signed_integer(left) or is_a.is_signed_integer(right)
        return not (signed and (is_a.is_uint64(left) or is_a.is_uint64(right)))
    if family is Family.TIMESTAMP:
        # A zoned timestamp is an instant, a naive one is a reading of some clock.
        return (left.tz is None) == (right.tz is None)
    return True


def has_order(type_: pa.DataType) -> bool:
    """Whether a single key of this type gets codes that sort as its values do."""
    family, values = family_of(type_), value_type(type_)
    if family is Family.DECIMAL:
        return bool(values.precision <= LONG_DIGITS)
    return family is not None and family not in (Family.STRING, Family.BINARY)


def is_own_code(type_: pa.DataType) -> bool:
    """Whether the Arrow data buffer of a column of this type already is its codes."""
    return bool(
        is_a.is_int64(type_)
        or is_a.is_timestamp(type_)
        or is_a.is_duration(type_)
        or (is_a.is_time64(type_) and type_.unit == "ns")
    )


def hashed_as(type_: pa.DataType) -> HashAs:
    """How Spark hashes a value of this ordered type.

    Types that Spark does not have are hashed by the nearest it has: float16 as float, and unsigned
    integers, times, durations and timestamps of any unit as long, by their code. (Spark's own timestamp,
    TIME and day-time interval are the special cases us, ns and us of these.)
    """
    family, values = family_of(type_), value_type(type_)
    if family is Family.FLOAT:
        return HashAs.DOUBLE if is_a.is_float64(values) else HashAs.FLOAT
    small = is_a.is_int8(values) or is_a.is_int16(values) or is_a.is_int32(values)
    return HashAs.INT if small or family in (Family.BOOLEAN, Family.DATE) else HashAs.LONG
