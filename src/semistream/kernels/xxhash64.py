"""XXH64 over whole columns, bit for bit equal to Spark's ``xxhash64``.

Every kernel folds one column into an array of running hashes, in place. Start from `SEED` and fold the columns left to
right: the result, read as int64, is Spark's ``xxhash64(col1, col2, ...)``.

>>> import numpy as np
>>> hashes = np.full(1, SEED, dtype=np.uint64)
>>> hash_longs(np.array([7], dtype=np.int64), hashes)  # Spark: SELECT xxhash64(7L)
>>> int(hashes.view(np.int64)[0])
-2864211556195259663

Reference: the XXH64 specification, https://github.com/Cyan4973/xxHash; Spark's
``org.apache.spark.sql.catalyst.expressions.XXH64`` has the same short forms for int and long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.kernels.compiler import kernel, subroutine

SEED = np.uint64(42)
"""Spark's seed: the running hash before the first column."""

# Typed constants, because numba turns an expression of a uint64 and an int literal into float64.
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_LOW_32 = np.uint64(0xFFFFFFFF)
_ONE, _FOUR, _EIGHT, _SIXTEEN, _STRIPE = (np.uint64(n) for n in (1, 4, 8, 16, 32))
_BITS = np.uint64(64)


@subroutine
def _rotate(x: np.uint64, bits: int) -> np.uint64:
    left = np.uint64(bits)
    return (x << left) | (x >> (_BITS - left))


@subroutine
def _mix(h: np.uint64) -> np.uint64:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@subroutine
def _round(accumulator: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(accumulator + word * _P2, 31) * _P1


@subroutine
def _merge(h: np.uint64, accumulator: np.uint64) -> np.uint64:
    return (h ^ _round(np.uint64(0), accumulator)) * _P1 + _P4


@subroutine
def _read_32(data: npt.NDArray[np.uint8], at: np.uint64) -> np.uint64:
    # Byte by byte, so that alignment does not matter; LLVM fuses the loop into one load.
    word = np.uint64(0)
    for i in range(4):
        word |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
    return word


@subroutine
def _read_64(data: npt.NDArray[np.uint8], at: np.uint64) -> np.uint64:
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
    return word


@subroutine
def _hash_range(data: npt.NDArray[np.uint8], start: np.uint64, length: np.uint64, seed: np.uint64) -> np.uint64:
    # Unsigned indices let numba drop the test for negative (wrap-around) indices.
    at, end = start, start + length
    if length >= _STRIPE:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at + _STRIPE <= end:
            a = _round(a, _read_64(data, at))
            b = _round(b, _read_64(data, at + _EIGHT))
            c = _round(c, _read_64(data, at + _SIXTEEN))
            d = _round(d, _read_64(data, at + _SIXTEEN + _EIGHT))
            at += _STRIPE
        h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        h = _merge(_merge(_merge(_merge(h, a), b), c), d)
    else:
        h = seed + _P5
    h += length
    while at + _EIGHT <= end:
        h = _rotate(h ^ _round(np.uint64(0), _read_64(data, at)), 27) * _P1 + _P4
        at += _EIGHT
    if at + _FOUR <= end:
        h = _rotate(h ^ (_read_32(data, at) * _P1), 23) * _P2 + _P3
        at += _FOUR
    while at < end:
        h = _rotate(h ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += _ONE
    return _mix(h)


@kernel
def hash_ints(values: npt.NDArray[np.integer[Any]], hashes: npt.NDArray[np.uint64]) -> None:
    """Fold a column as Spark's ``hashInt`` does, using the low 32 bits of ``values`` of any integer dtype."""
    for i in range(values.size):
        word = np.uint64(values[i]) & _LOW_32
        h = (hashes[i] + _P5 + _FOUR) ^ (word * _P1)
        hashes[i] = _mix(_rotate(h, 23) * _P2 + _P3)


@kernel
def hash_longs(values: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> None:
    """Fold a column of int64 as Spark's ``hashLong`` does."""
    for i in range(values.size):
        h = (hashes[i] + _P5 + _EIGHT) ^ _round(np.uint64(0), np.uint64(values[i]))
        hashes[i] = _mix(_rotate(h, 27) * _P1 + _P4)


@kernel
def hash_bytes(
    offsets: npt.NDArray[np.signedinteger[Any]], data: npt.NDArray[np.uint8], hashes: npt.NDArray[np.uint64]
) -> None:
    """Fold a column of byte strings as Spark's ``hashUnsafeBytes`` does.

    Row ``i`` is ``data[offsets[i]:offsets[i + 1]]``. ``offsets`` (int32 or int64) has one more entry than ``hashes``
    and need not start at zero, as in the layout of a sliced Arrow string array.
    """
    for i in range(hashes.size):
        start = np.uint64(offsets[i])
        hashes[i] = _hash_range(data, start, np.uint64(offsets[i + 1]) - start, hashes[i])


@kernel
def hash_ranges(
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    hashes: npt.NDArray[np.uint64],
) -> None:
    """Fold arbitrary ranges of ``data``, each as `hash_bytes` folds a row."""
    for i in range(hashes.size):
        hashes[i] = _hash_range(data, np.uint64(starts[i]), np.uint64(lengths[i]), hashes[i])


@kernel(allocates=True)
def hash_big_integers(words: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> None:
    """Fold a column of wide integers as Spark folds the unscaled value of a decimal over 18 digits.

    ``words[i]`` is row ``i`` in two's complement, least word first. The hash covers its shortest big-endian form, as
    returned by Java's ``BigInteger.toByteArray``.
    """
    width = 4 * words.shape[1]
    big_endian = np.empty(width, dtype=np.uint8)
    for i in range(hashes.size):
        for j in range(width):
            big_endian[width - 1 - j] = (words[i, j // 4] >> np.uint32(8 * (j % 4))) & np.uint32(0xFF)
        first, sign = 0, 0xFF if big_endian[0] >= 0x80 else 0
        # Drop a leading byte if it only repeats the sign in the top bit of the next byte.
        while first < width - 1 and big_endian[first] == sign and big_endian[first + 1] >> 7 == sign >> 7:
            first += 1
        hashes[i] = _hash_range(big_endian, np.uint64(first), np.uint64(width - first), hashes[i])
