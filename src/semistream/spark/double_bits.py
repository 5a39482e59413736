"""The bits of a double as a Spark expression, in the order of the doubles."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sf

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
