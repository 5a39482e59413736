"""Key codes as Spark expressions, so that the JVM computes the same codes as `KeyCodec.encode` does in Python."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, TimestampNTZType

from semistream.errors import KeyTypeError
from semistream.keys import KeyCodec
from semistream.keys.key_types import LONG_DIGITS, UNITS_PER_SECOND, Family, HashAs, family_of, has_order, hashed_as
from semistream.keys.key_types import value_type as values_of

_FRACTION_BITS = 52
_BIAS = 1023
_LEAST_EXPONENT = -1022  # of normal doubles
_INFINITY_BITS = 0x7FF0_0000_0000_0000
_NAN_BITS = 0x7FF8_0000_0000_0000


def ordered_bits(value: Column) -> Column:
    """Return the IEEE 754 bits of ``value`` as a bigint, flipped for negatives so that bigints sort like the doubles.

    -0.0 counts as 0.0, and every NaN as the one with the canonical bits, as in `KeyCodec`. Spark has no function for
    the bits, so the expression assembles them from exponent and fraction. Every step is exact: scaling by powers of two
    is exact, and so is Java's ``pow`` for whole arguments with a representable result. Only ``log2`` rounds; the
    exponent is corrected for this.
    """
    size = sf.abs(value)
    bits = (
        sf.when(sf.isnan(value), sf.lit(_NAN_BITS))
        .when(size == sf.lit(float("inf")), sf.lit(_INFINITY_BITS))
        .when(size < sf.lit(2.0**_LEAST_EXPONENT), _subnormal_bits(size))
        .otherwise(_normal_bits(size))
    )
    # The complement of the magnitude, with the sign bit set, is -1 - bits. NaNs have no sign here.
    return sf.when((value < sf.lit(0.0)) & ~sf.isnan(value), sf.lit(-1) - bits).otherwise(bits)


def _subnormal_bits(size: Column) -> Column:
    """Return the bits of zero and of subnormal doubles: multiples of the least double, 2**-1074."""
    return (size * sf.lit(2.0**537) * sf.lit(2.0**537)).cast("bigint")


def _normal_bits(size: Column) -> Column:
    guess = sf.greatest(sf.least(sf.floor(sf.log2(size)), sf.lit(_BIAS)), sf.lit(_LEAST_EXPONENT)).cast("int")
    scaled = size / sf.pow(sf.lit(2.0), guess)
    exponent = sf.when(scaled >= sf.lit(2.0), guess + 1).when(scaled < sf.lit(1.0), guess - 1).otherwise(guess)
    fraction = sf.when(scaled >= sf.lit(2.0), scaled / 2).when(scaled < sf.lit(1.0), scaled * 2).otherwise(scaled)
    # The fraction lies in [1, 2). Its leading 1 is not stored; adding it increments the exponent field, hence the -1.
    field = (exponent + sf.lit(_BIAS - 1)).cast("bigint")
    return sf.shiftleft(field, _FRACTION_BITS) + (fraction * sf.lit(2.0**_FRACTION_BITS)).cast("bigint")


_SPARK_DIGITS = 38
_MICROS = UNITS_PER_SECOND["us"]


def key_code(columns: Sequence[Column], types: Sequence[DataType], codec: KeyCodec) -> Column:
    """Return the key code of a row as a bigint, equal to ``codec.encode`` for every row that can match.

    ``columns`` and their Spark ``types`` are the stream's, in the order of R's key; ``codec.accept`` must have accepted
    them. For a row that cannot match (a null, or a value that R's type cannot hold) the code is null or arbitrary. No
    value makes the expression fail.
    """
    keys = list(zip(columns, types, codec.types, codec.names, strict=True))
    if codec.ordered:
        return _ordered(*keys[0])
    return sf.xxhash64(*(_hashed(*key) for key in keys))


def _ordered(column: Column, spark_type: DataType, own: pa.DataType, name: str) -> Column:
    own = values_of(own)
    match family_of(own):
        case Family.INTEGER if pa.types.is_uint64(own):
            return _less_sign_bit(column, spark_type)
        case Family.INTEGER:
            return column.try_cast("bigint")
        case Family.BOOLEAN:
            return column.cast("bigint")
        case Family.DATE:
            return sf.unix_date(column).cast("bigint")
        case Family.TIME:
            return _time_nanos(column)
        case Family.TIMESTAMP:
            return _change_unit(_timestamp_micros(column, spark_type), own.unit)
        case Family.DURATION:
            return _change_unit(_interval_micros(column), own.unit)
        case Family.FLOAT:
            return ordered_bits(column.cast("double"))
        case Family.DECIMAL:
            return _unscaled(column, own, name)
        case Family.NULL:
            return sf.lit(None).cast("bigint")
    raise _no_expression(own, name)


def _less_sign_bit(column: Column, spark_type: DataType) -> Column:
    """Return numbers from 0 to 2**64 - 1, less 2**63: the codes of uint64."""
    if isinstance(spark_type, DecimalType):
        return (column.try_cast("decimal(20,0)") - sf.lit(Decimal(1 << 63))).try_cast("bigint")
    low = column.try_cast("bigint").bitwiseXOR(sf.lit(-(1 << 63)))
    if isinstance(spark_type, DoubleType | FloatType):  # whose casts to decimals round
        half = sf.lit(2.0**63)
        return sf.when(column < half, low).otherwise((column.cast("double") - half).try_cast("bigint"))
    return low


def _hashed(column: Column, spark_type: DataType, own: pa.DataType, name: str) -> Column:
    """Cast a key column to the type for which Spark's ``xxhash64`` gives the same hash as `KeyCodec`."""
    own = values_of(own)
    if family_of(own) is Family.NESTED:
        raise KeyTypeError(
            f'relation key {name!r} is {own}, whose codes Spark cannot compute. Use route="none", and build the '
            "relation with Relation.build."
        )
    if family_of(own) in (Family.STRING, Family.BINARY):
        return column.cast("binary")  # hashes like the string, but independently of its collation
    if not has_order(own):
        if not 0 <= own.scale <= own.precision <= _SPARK_DIGITS:
            raise _no_expression(own, name)
        return column.try_cast(f"decimal({own.precision},{own.scale})")
    match hashed_as(own):
        case HashAs.INT:
            return _ordered(column, spark_type, own, name).try_cast("int")
        case HashAs.LONG:
            return _ordered(column, spark_type, own, name)
        case HashAs.FLOAT:
            return column.cast("float")
        case HashAs.DOUBLE:
            return column.cast("double")


def _time_nanos(column: Column) -> Column:
    # Not time_to_micros: unlike this cast, it needs a setting that is off by default.
    return (column.cast("decimal(14,9)") * sf.lit(Decimal(UNITS_PER_SECOND["ns"]))).cast("bigint")


def _timestamp_micros(column: Column, spark_type: DataType) -> Column:
    if isinstance(spark_type, TimestampNTZType):
        # unix_micros would read it in the session's time zone, whose clock skips and repeats hours.
        return _interval_micros(column - sf.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'"))
    return sf.unix_micros(column)


def _interval_micros(column: Column) -> Column:
    """Return a day-time interval in microseconds. Spark casts only single-unit intervals to numbers."""
    seconds = column.cast("interval second").cast("decimal(19,6)")
    return (seconds * sf.lit(_MICROS).cast("decimal(7,0)")).cast("bigint")


def _change_unit(micros: Column, unit: str) -> Column:
    per_second = UNITS_PER_SECOND[unit]
    if per_second > _MICROS:
        return sf.try_multiply(micros, sf.lit(per_second // _MICROS))
    if per_second < _MICROS:
        return sf.call_function("div", micros, sf.lit(_MICROS // per_second))
    return micros


def _unscaled(column: Column, own: pa.DataType, name: str) -> Column:
    """Return the unscaled value, at R's scale, of a decimal of at most 18 digits."""
    digits, scale = max(own.precision, own.scale), own.scale
    if scale >= 0 and digits <= LONG_DIGITS:
        # The product has 18 + 19 + 1 digits: the most that Spark computes without dropping fraction digits.
        return (column.try_cast(f"decimal({digits},{scale})") * sf.lit(Decimal(10**scale))).cast("bigint")
    if scale < 0 and digits - scale <= _SPARK_DIGITS:
        whole = column.try_cast(f"decimal({digits - scale},0)")
        return sf.call_function("div", whole, sf.lit(Decimal(10**-scale))).cast("bigint")
    raise _no_expression(own, name)


def _no_expression(own: pa.DataType, name: str) -> KeyTypeError:
    return KeyTypeError(
        f"relation key {name!r} is {own}, whose codes Spark cannot compute: its decimals have at most "
        f'{_SPARK_DIGITS} digits. Use route="none", or build the relation with the key cast.'
    )
