"""Brute force for join keys: raw values of every key type, and what each means exactly, in plain Python.

A raw value is what the Arrow buffer stores: an int for all but floats (float), strings and binaries
(bytes). `meaning` maps it to an object that Python compares exactly.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32()]
DECIMALS = [
    pa.decimal32(9, 2), pa.decimal64(18, 4), pa.decimal128(5, 0), pa.decimal128(18, 2), pa.decimal128(19, 2),
    pa.decimal128(38, 10), pa.decimal128(10, -3), pa.decimal256(76, 30), pa.decimal256(40, 2),
]  # fmt: skip
# Within a group every pair is accepted; between groups none is.
GROUPS: dict[str, list[pa.DataType]] = {
    "integer": SIGNED + UNSIGNED,
    "unsigned": [*UNSIGNED, pa.uint64()],
    "boolean": [pa.bool_()],
    "date": [pa.date32(), pa.date64()],
    "time": [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
    "naive": [pa.timestamp(unit) for unit in UNITS],
    "zoned": [pa.timestamp(unit, zone) for unit, zone in zip(UNITS, ["UTC", "Asia/Tokyo"] * 2, strict=True)],
    "duration": [pa.duration(unit) for unit in UNITS],
    "decimal": DECIMALS,
    "float": [pa.float16(), pa.float32(), pa.float64()],
    "string": [pa.string(), pa.large_string(), pa.string_view()],
    "binary": [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2), pa.binary(9)],
}
PAIRS = [(group, s, r) for group, types in GROUPS.items() for s in types for r in types]
HASHED = {"string", "binary"}
_FLOATS = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.1, float(np.float32(0.1)), 0.5, -2.5, 65504.0, 1e-8,
           5e-324, 3.4028234663852886e38, 1.7e308, -1.7e308]  # fmt: skip


def raw_values(group: str, type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Valid raw values, crowded round small numbers and limits so that both sides often meet."""
    if group in ("string", "binary"):
        if pa.types.is_fixed_size_binary(type_):
            return st.sampled_from([bytes(type_.byte_width), b"\xc3\xa9abcdefghijk"[: type_.byte_width]])
        text = st.sampled_from(["", "a", "é", "éabcdefg", "\0\0", "x" * 40, "x" * 41]) | st.text(max_size=3)
        return text.map(str.encode)
    if group == "float":
        dtype = f"f{type_.bit_width // 8}"
        with np.errstate(over="ignore"):
            pool = [float(np.dtype(dtype).type(value)) for value in _FLOATS]
        return st.sampled_from(pool) | st.floats(width=type_.bit_width)
    if group == "boolean":
        return st.integers(0, 1)
    if group == "time":
        return st.integers(0, 3).map(lambda v: v * UNITS[type_.unit]) | st.integers(0, 86_400 * UNITS[type_.unit] - 1)
    if group == "decimal":
        limit = 10**type_.precision - 1
        steps = st.tuples(st.integers(-3, 3), st.integers(0, max(0, type_.precision - 1)))
        return steps.map(lambda s: max(-limit, min(limit, s[0] * 10 ** s[1]))) | st.integers(-limit, limit)
    width = type_.bit_width
    unsigned = pa.types.is_unsigned_integer(type_)
    low, high = (0, 2**width - 1) if unsigned else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
    step = {"date": 86_400_000 if width == 64 else 1}.get(group, 1)
    steps = [10**k for k in range(0, 19, 3)] if group in ("naive", "zoned", "duration") else [step]
    edges = [low, high, 127, 128, -129, 255, 256, 2**31, 2**31 - 1, -(2**31) - 1, 2**32, 2**63 - 1]
    pool = [v for v in [*edges, *(k * s for k in range(-3, 4) for s in steps)] if low <= v <= high]
    # A valid date64 is a whole number of days; rounding towards zero stays in range.
    whole = st.sampled_from(pool) | st.integers(low, high)
    return whole.map(lambda v: v // step * step if v >= 0 else -(-v // step * step))


def array_of(raw: list[Any], type_: pa.DataType) -> pa.Array:
    """An Arrow array that stores these raw values (None is null)."""
    if pa.types.is_decimal(type_):
        sign = [None if v is None else (int(v < 0), tuple(map(int, str(abs(v)))), -type_.scale) for v in raw]
        return pa.array([None if s is None else Decimal(s) for s in sign], type_)
    if pa.types.is_floating(type_):
        dtype = np.dtype(f"f{type_.bit_width // 8}").type
        return pa.array([None if v is None else dtype(v) for v in raw], type_)
    if pa.types.is_boolean(type_):
        return pa.array([None if v is None else bool(v) for v in raw], type_)
    if isinstance(next((v for v in raw if v is not None), b""), bytes):
        if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
            return pa.array([None if v is None else v.decode() for v in raw], type_)
        return pa.array(raw, type_)
    if pa.types.is_integer(type_):
        return pa.array(raw, type_)
    return pa.array(raw, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)


def meaning(raw: Any, type_: pa.DataType) -> Any:
    """The exact value; None for null. NaN means one thing and is greatest, -0.0 means 0.0."""
    if raw is None or isinstance(raw, bytes):
        return raw
    if isinstance(raw, float):
        return (1, 0.0) if math.isnan(raw) else (0, raw)
    if pa.types.is_decimal(type_):
        return Fraction(raw) / Fraction(10) ** type_.scale
    if pa.types.is_date64(type_):
        return raw // 86_400_000
    return Fraction(raw, UNITS[type_.unit]) if hasattr(type_, "unit") and not is_date(type_) else raw


def is_date(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_))


def holds(type_: pa.DataType, value: Any) -> bool:
    """Return True if some value of the type equals this."""
    if isinstance(value, bytes):
        return not pa.types.is_fixed_size_binary(type_) or len(value) == type_.byte_width
    if isinstance(value, tuple):
        with np.errstate(over="ignore"):
            return value[0] == 1 or float(np.dtype(f"f{type_.bit_width // 8}").type(value[1])) == value[1]
    if pa.types.is_decimal(type_):
        unscaled = value * Fraction(10) ** type_.scale
        return unscaled.denominator == 1 and abs(unscaled) < 10**type_.precision
    if pa.types.is_boolean(type_) or pa.types.is_date64(type_):
        return True
    stored = value if pa.types.is_integer(type_) or is_date(type_) else value * UNITS[type_.unit]
    if pa.types.is_unsigned_integer(type_):
        return bool(0 <= stored < 2**type_.bit_width)
    half = 2 ** (type_.bit_width - 1)
    return Fraction(stored).denominator == 1 and bool(-half <= stored < half)
