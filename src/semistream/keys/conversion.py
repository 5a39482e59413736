"""Exact conversion of key columns of any accepted type to the relation's type.

No value raises an error: a value that the relation's type cannot hold is marked as impossible to match. Arrays are
assumed to be valid in Arrow's sense (``array.validate(full=True)``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as is_a

from semistream.errors import KeyTypeError
from semistream.keys.kernels import WORDS, floor_decimals, rescale_decimals
from semistream.keys.key_types import UNITS_PER_SECOND, Family, family_of, has_order, hashed_as, value_type
from semistream.keys.nested_keys import nested_bytes
from semistream.keys.values import ByteStrings, Codes, KeyValues, Mask, OrderedValues, WideDecimals, both, twist

_INT64_MAX = np.iinfo(np.int64).max
_DAY_MS = 86_400_000
SIGN_BIT = np.uint64(1 << 63)
"""The bit that turns the order of unsigned integers into that of signed ones."""
_INTEGER_DIGITS = 20  # of the greatest uint64


def exact_values(array: pa.Array, like: pa.DataType) -> KeyValues:
    """Convert the values of ``array`` to the type ``like``, which must be comparable with the array's type.

    >>> values = exact_values(pa.array([1000, 1500], pa.timestamp("ms")), pa.timestamp("s"))
    >>> values.codes.tolist(), values.possible.tolist()
    ([1, 1], [True, False])
    """
    family, like = family_of(like), value_type(like)
    array = typed(decoded(array), like)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    match family:
        case Family.INTEGER:
            codes, fits = _integers(array, like)
        case Family.BOOLEAN:
            codes, fits = _buffer(array.cast(pa.uint8()), np.uint8).astype(np.int64), None
        case Family.DATE:
            codes, fits = _days(array, like)
        case Family.TIMESTAMP | Family.DURATION:
            codes, fits = _change_unit(stored_integers(array).astype(np.int64, copy=False), array.type.unit, like.unit)
        case Family.TIME:
            # Convert through the relation's unit, to mark what it cannot hold as impossible, then to nanoseconds.
            coarse, fits = _change_unit(stored_integers(array).astype(np.int64, copy=False), array.type.unit, like.unit)
            codes, in_range = _change_unit(coarse, like.unit, "ns")
            fits = both(fits, in_range)
        case Family.FLOAT:
            codes, fits = _floats(array, like)
        case Family.DECIMAL:
            words, fits = _decimals(array, like)
            if not has_order(like):
                return WideDecimals(both(valid, fits), words)
            codes = np.ascontiguousarray(words[:, :2]).view(np.int64).ravel()
        case Family.STRING | Family.BINARY:
            return _bytes(array, like, valid)
        case Family.NESTED:
            content, fits = nested_bytes(array, like, exact_values)
            return ByteStrings(both(valid, fits), content)
        case Family.NULL:
            codes, fits = np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
        case None:
            raise KeyTypeError(f"type {like} cannot be a join key. Check the key types with KeyCodec.of first.")
    return OrderedValues(both(valid, fits), codes, hashed_as(like))


def decoded(array: pa.Array) -> pa.Array:
    """Decode a dictionary array; return any other array unchanged."""
    if not is_a.is_dictionary(array.type):
        return array
    values = array.dictionary
    if family_of(values.type) in (Family.STRING, Family.BINARY):
        values = values.cast(pa.large_binary())  # decoding can exceed the 2 GiB of 32-bit offsets
    return values.take(array.indices)


def typed(array: pa.Array, like: pa.DataType) -> pa.Array:
    """Return nulls of the type null as nulls of the type ``like``; return any other array unchanged."""
    return pa.nulls(len(array), like) if is_a.is_null(array.type) else array


def _buffer(array: pa.Array, dtype: npt.DTypeLike, per_row: int = 1) -> npt.NDArray[Any]:
    """Return a view of the data buffer of a fixed-width column, restricted to this slice."""
    dtype, count = np.dtype(dtype), len(array) * per_row
    if count == 0:
        return np.empty(0, dtype=dtype)
    start = array.offset * per_row * dtype.itemsize
    return np.frombuffer(array.buffers()[1], dtype=dtype, count=count, offset=start)


def stored_integers(array: pa.Array) -> npt.NDArray[Any]:
    """Return a view of the integers stored in a fixed-width column."""
    kind = "u" if is_a.is_unsigned_integer(array.type) else "i"
    return _buffer(array, f"{kind}{array.type.bit_width // 8}")


def _integers(array: pa.Array, like: pa.DataType) -> tuple[Codes, Mask | None]:
    family = family_of(array.type)
    if family is not Family.INTEGER:
        floor, exact, _ = (floor_of_decimals if family is Family.DECIMAL else floor_of_floats)(array, like)
        if is_a.is_uint64(like):
            return floor, exact
        least, greatest = _limits(like)
        return floor, exact & (floor >= least) & (floor <= greatest)
    values = stored_integers(array)
    if is_a.is_uint64(like):
        codes = (values.astype(np.uint64) ^ SIGN_BIT).view(np.int64)
        return codes, values >= 0 if is_a.is_signed_integer(array.type) else None
    if array.type == like:
        return values.astype(np.int64, copy=False), None
    least, greatest = _limits(like)
    own = np.iinfo(values.dtype)
    fits = None
    if own.min < least or own.max > greatest:
        # Test only a bound that the column's type can cross: the other may not even fit its dtype.
        above = values >= least if own.min < least else None
        fits = both(above, values <= greatest if own.max > greatest else None)
    return values.astype(np.int64, copy=False), fits


def _limits(type_: pa.DataType) -> tuple[int, int]:
    limits = np.iinfo(f"{'u' if is_a.is_unsigned_integer(type_) else 'i'}{type_.bit_width // 8}")
    return int(limits.min), int(limits.max)


def floor_of_decimals(array: pa.Array, like: pa.DataType, plus: int = 0) -> tuple[Codes, Mask, Mask]:
    """Return the floor of each decimal among the codes of integers, the values equal to it, and those below all codes.

    ``plus`` is added first, at the scale of the decimals.
    """
    rows, scale = len(array), array.type.scale
    floor, exact, below = np.empty(rows, np.int64), np.empty(rows, np.bool_), np.empty(rows, np.bool_)
    if is_a.is_uint64(like):
        plus -= (1 << 63) * 10 ** max(scale, 0)
    floor_decimals(decimal_words(array), -scale, wide_words(plus, -scale), floor, exact, below)
    return floor, exact, below


def floor_of_floats(array: pa.Array, like: pa.DataType) -> tuple[Codes, Mask, Mask]:
    """Return the floor of each float among the codes of integers, the values equal to it, and those below all codes.

    NaN is above all codes, as it is greater than all numbers.
    """
    values = _as_doubles(array)
    least, end = (0.0, 2.0**64) if is_a.is_uint64(like) else (-(2.0**63), 2.0**63)
    whole = np.floor(values)
    below = values < least
    inside = (values >= least) & (values < end)
    whole[~inside] = 0.0
    codes = (whole.astype(np.uint64) ^ SIGN_BIT).view(np.int64) if is_a.is_uint64(like) else whole.astype(np.int64)
    return np.where(inside, codes, _INT64_MAX), inside & (whole == values), below


def floor_among_floats(array: pa.Array) -> tuple[Codes, Mask]:
    """Return the floor of each integer among the codes of floats, and the values equal to it."""
    values = stored_integers(array)
    rounded = values.astype(np.float64)
    unsigned = is_a.is_uint64(array.type)
    fits = rounded < (2.0**64 if unsigned else 2.0**63)  # others were rounded up to a number that the type lacks
    back = np.where(fits, rounded, 0.0).astype(values.dtype)
    codes = twist((rounded + 0.0).view(np.int64))
    above = ~fits | (back > values)
    return codes - above, fits & (back == values)


def wide_words(plus: int, shift: int) -> npt.NDArray[np.uint64]:
    """Encode ``plus`` for the decimal kernels, with enough words for any decimal shifted by ``shift`` digits."""
    bits = 32 * WORDS + 4 * abs(shift) + plus.bit_length() + 2
    words = -(-bits // 32)
    content = (plus % (1 << (32 * words))).to_bytes(4 * words, "little")
    return np.frombuffer(content, np.uint32).astype(np.uint64)


def as_decimals(array: pa.Array) -> pa.Array:
    """Return integers as decimals; return decimals unchanged."""
    return array.cast(pa.decimal128(_INTEGER_DIGITS, 0)) if family_of(array.type) is Family.INTEGER else array


def stored_days(array: pa.Array) -> Codes:
    """Return dates of either width as days."""
    days: Codes = stored_integers(array).astype(np.int64, copy=False)
    return days if is_a.is_date32(array.type) else days // _DAY_MS


def _days(array: pa.Array, like: pa.DataType) -> tuple[Codes, Mask | None]:
    days = stored_days(array)
    if is_a.is_date32(array.type) or is_a.is_date64(like):
        return days, None
    return days, days == days.astype(np.int32)


def _change_unit(values: Codes, unit: str, to: str) -> tuple[Codes, Mask | None]:
    have, want = UNITS_PER_SECOND[unit], UNITS_PER_SECOND[to]
    if have == want:
        return values, None
    if have > want:
        coarse = values // (have // want)
        return coarse, coarse * (have // want) == values
    factor = want // have
    return values * factor, (values >= -(_INT64_MAX // factor)) & (values <= _INT64_MAX // factor)


def float_codes(array: pa.Array) -> Codes:
    """Return floats of any width as codes in the order of their values. Both zeros share a code; NaN has the last."""
    values = _as_doubles(array)
    values[np.isnan(values)] = np.nan
    return twist(values.view(np.int64))


def _as_doubles(array: pa.Array) -> npt.NDArray[np.float64]:
    """Return floats of any width as float64, with one zero."""
    raw = _buffer(array, f"f{array.type.bit_width // 8}")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values: npt.NDArray[np.float64] = raw.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    return values


def _floats(array: pa.Array, like: pa.DataType) -> tuple[Codes, Mask | None]:
    if family_of(array.type) is Family.INTEGER:
        codes, exact = floor_among_floats(array)
        return codes, both(exact, _are_narrow(codes, like))
    codes = float_codes(array)
    return codes, None if like.bit_width >= array.type.bit_width else _are_narrow(codes, like)


def _are_narrow(codes: Codes, like: pa.DataType) -> Mask:
    """Return a mask of the codes of floats that the type has."""
    values = twist(codes).view(np.float64)
    with np.errstate(over="ignore"):  # values too large for `like`
        narrow: Mask = (values.astype(f"f{like.bit_width // 8}") == values) | np.isnan(values)
    return narrow


def decimal_words(array: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the unscaled values of decimals as rows of 32-bit words, least first, in two's complement."""
    width = array.type.bit_width // 32
    return _buffer(array, np.uint32, per_row=width).reshape(-1, width)


def _decimals(array: pa.Array, like: pa.DataType) -> tuple[npt.NDArray[np.uint32], Mask | None]:
    array = as_decimals(array)
    words = decimal_words(array)
    width = words.shape[1]
    if array.type.scale == like.scale and array.type.precision <= like.precision:
        target = 2 if has_order(like) else WORDS
        if width >= target:
            return words[:, :target], None
        sign = (words[:, -1:].view(np.int32) >> 31).view(np.uint32)
        return np.hstack([words, np.repeat(sign, target - width, axis=1)]), None
    rescaled = np.empty((len(array), WORDS), dtype=np.uint32)
    limit = np.frombuffer((10**like.precision).to_bytes(4 * WORDS, "little"), dtype=np.uint32)
    exact = np.empty(len(array), dtype=np.bool_)
    rescale_decimals(words, like.scale - array.type.scale, limit, rescaled, exact)
    return rescaled, exact


def _bytes(array: pa.Array, like: pa.DataType, valid: Mask | None) -> ByteStrings:
    has_no_offsets = is_a.is_string_view(array.type) or is_a.is_binary_view(array.type)
    if has_no_offsets or is_a.is_fixed_size_binary(array.type):
        array = array.cast(pa.large_binary())
    values = ByteStrings(valid, array)
    if is_a.is_fixed_size_binary(like):
        # Binaries of any other length have no equal in a fixed-size type.
        return ByteStrings(both(valid, np.diff(values.layout()[0]) == like.byte_width), array)
    return values
