"""Key codes as Spark expressions: the JVM computes what `KeyCodec.encode` computes in Python.

The bits of a double as a Spark expression, in the order of the doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, TimestampNTZType

from semistream.errors import KeyTypeError
from semistream.keys import KeyCodec
from semistream.keys.key_types import LONG_DIGITS, UNITS_PER_SECOND, Family, HashAs, family_of, has_order, hashed_as
from semistream.keys.key_types import value_type as values_of

_FRACTION_BITS = 52
_BIAS = 1023
_LEAST_EXPONENT = -1022  # of a normal double
_INFINITY_BITS = 0x7FF0_0000_0000_0000
_NAN_BITS = 0x7FF8_0000_0000_0000


def ordered_bits(value: Column) -> Column:
    """IEEE 754 bits of ``value`` as a bigint, those of negatives flipped so that the bigints sort as the doubles do.

    -0.0 counts as 0.0, and every NaN as the one with the canonical bits, as in `KeyCodec`. Spark has no function for
    the bits, so they are put together from exponent and fraction. Every step is exact: scaling by powers of two is, and
    Java's ``pow`` is exact for whole arguments with a representable result. Only ``log2`` rounds, which the exponent is
    corrected for.
    """
    size = sf.abs(value)
    bits = (
        sf.when(sf.isnan(value), sf.lit(_NAN_BITS))
        .when(size == sf.lit(float("inf")), sf.lit(_INFINITY_BITS))
        .when(size < sf.lit(2.0**_LEAST_EXPONENT), _subnormal_bits(size))
        .otherwise(_normal_bits(size))
    )
    # The complement of the magnitude, with the sign bit set: -1 - bits. A NaN has no sign here.
    return sf.when((value < sf.lit(0.0)) & ~sf.isnan(value), sf.lit(-1) - bits).otherwise(bits)


def _subnormal_bits(size: Column) -> Column:
    """Zero and what is so small that it has no exponent: a count of the least double, 2**-1074."""
    return (size * sf.lit(2.0**537) * sf.lit(2.0**537)).cast("bigint")


def _normal_bits(size: Column) -> Column:
    guess = sf.greatest(sf.least(sf.floor(sf.log2(size)), sf.lit(_BIAS)), sf.lit(_LEAST_EXPONENT)).cast("int")
    scaled = size / sf.pow(sf.lit(2.0), guess)
    exponent = sf.when(scaled >= sf.lit(2.0), guess + 1).when(scaled < sf.lit(1.0), guess - 1).otherwise(guess)
    fraction = sf.when(scaled >= sf.lit(2.0), scaled / 2).when(scaled < sf.lit(1.0), scaled * 2).otherwise(scaled)
    # The fraction lies in [1, 2): its leading 1 is not stored, so it adds one to the exponent field instead.
    field = (exponent + sf.lit(_BIAS - 1)).cast("bigint")
    return sf.shiftleft(field, _FRACTION_BITS) + (fraction * sf.lit(2.0**_FRACTION_BITS)).cast("bigint")


_SPARK_DIGITS = 38
_MICROS = UNITS_PER_SECOND["us"]


def key_code(columns: Sequence[Column], types: Sequence[DataType], codec: KeyCodec) -> Column:
    """The code of a row as a bigint, equal to that of ``codec.encode`` in every row that can match.

    ``columns`` and their Spark ``types`` are the stream's, in the order of R's key; ``codec.accept`` must have taken
    them. In a row that cannot match (a null, or a value that R's type cannot hold) the code is null or means nothing;
    no value makes the expression fail.
    """
    keys = list(zip(columns, types, codec.types, codec.names, strict=True))
    if codec.ordered:
        return _ordered(*keys[0])
    return sf.xxhash64(*(_hashed(*key) for key in keys))


def _ordered(column: Column, spark_type: DataType, own: pa.DataType, name: str) -> Column:
    own = values_of(own)
    match family_of(own):
        case Family.INTEGER | Family.BOOLEAN:
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
    raise _no_expression(own, name)


def _hashed(column: Column, spark_type: DataType, own: pa.DataType, name: str) -> Column:
    """A component in the form in which Spark hashes it as `KeyCodec` does."""
    own = values_of(own)
    if family_of(own) in (Family.STRING, Family.BINARY):
        return column.cast("binary")  # the same hash as a string's; a collation would change that
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
    # Not by time_to_micros: unlike this cast, Spark guards it by a setting that is off by default.
    return (column.cast("decimal(14,9)") * sf.lit(Decimal(UNITS_PER_SECOND["ns"]))).cast("bigint")


def _timestamp_micros(column: Column, spark_type: DataType) -> Column:
    if isinstance(spark_type, TimestampNTZType):
        # unix_micros would read it on the session's clock, which skips and repeats hours.
        return _interval_micros(column - sf.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'"))
    return sf.unix_micros(column)


def _interval_micros(column: Column) -> Column:
    """Microseconds of a day-time interval: only one of a single unit can be cast to a number."""
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
    """The unscaled value of a decimal of up to 18 digits, at R's scale."""
    digits, scale = max(own.precision, own.scale), own.scale
    if scale >= 0 and digits <= LONG_DIGITS:
        # Digits of the product: 18 + 19 + 1, just what Spark has without giving up fraction.
        return (column.try_cast(f"decimal({digits},{scale})") * sf.lit(Decimal(10**scale))).cast("bigint")
    if scale < 0 and digits - scale <= _SPARK_DIGITS:
        whole = column.try_cast(f"decimal({digits - scale},0)")
        return sf.call_function("div", whole, sf.lit(Decimal(10**-scale))).cast("bigint")
    raise _no_expression(own, name)


def _no_expression(own: pa.DataType, name: str) -> KeyTypeError:
    return KeyTypeError(
        f"relation key {name!r} is {own}, whose codes Spark cannot compute: it has decimals of at most "
        f'{_SPARK_DIGITS} digits. Use route="none", or build the relation with the key cast.'
    )
