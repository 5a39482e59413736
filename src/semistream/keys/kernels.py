"""Kernels for decimals of up to 256 bits: exact change of scale, rounding down, and comparison.

Arrow's own cast either stops at the first value that does not fit or wraps it silently; a join key needs a verdict for
every row. Intermediate values may be longer than any Arrow decimal, so the order kernels take as many 32-bit words as
the caller provides, each in a 64-bit entry, least significant first, in two's complement.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.kernels.compiler import kernel, subroutine

WORDS = 8
"""Number of 32-bit words in a row of `rescale_decimals`' result: 256 bits, the widest Arrow decimal."""

_DIGITS_PER_STEP = 9  # 10**9 is the largest power of ten in a word, so a step's products fit 64 bits
_SHIFT = np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)
_ZERO, _ONE, _TEN = np.uint64(0), np.uint64(1), np.uint64(10)


@subroutine
def _negate(value: npt.NDArray[np.uint64]) -> None:
    carry = _ONE
    for j in range(value.size):
        total = (value[j] ^ _LOW_32) + carry
        value[j] = total & _LOW_32
        carry = total >> _SHIFT


@subroutine
def _multiply(value: npt.NDArray[np.uint64], factor: np.uint64) -> np.uint64:
    carry = _ZERO
    for j in range(value.size):
        total = value[j] * factor + carry
        value[j] = total & _LOW_32
        carry = total >> _SHIFT
    return carry


@subroutine
def _divide(value: npt.NDArray[np.uint64], divisor: np.uint64) -> np.uint64:
    remainder = _ZERO
    for j in range(value.size - 1, -1, -1):
        total = (remainder << _SHIFT) | value[j]
        value[j] = total // divisor
        remainder = total % divisor
    return remainder


@subroutine
def _power(digits: int) -> np.uint64:
    power = _ONE
    for _ in range(digits):
        power *= _TEN
    return power


@subroutine
def _is_below(words: npt.NDArray[np.uint64], limit: npt.NDArray[np.uint32]) -> bool:
    for j in range(WORDS - 1, -1, -1):
        if words[j] != np.uint64(limit[j]):
            return bool(words[j] < np.uint64(limit[j]))
    return False


@subroutine
def _is_negative(value: npt.NDArray[np.uint64]) -> bool:
    return bool(value[value.size - 1] >> np.uint64(31) == _ONE)


@subroutine
def _load(words: npt.NDArray[np.uint32], value: npt.NDArray[np.uint64]) -> None:
    filler = _LOW_32 if words[words.size - 1] >> np.uint32(31) == 1 else _ZERO
    for j in range(value.size):
        value[j] = np.uint64(words[j]) if j < words.size else filler


@kernel(allocates=True)
def rescale_decimals(
    words: npt.NDArray[np.uint32],
    shift: int,
    limit: npt.NDArray[np.uint32],
    rescaled: npt.NDArray[np.uint32],
    exact: npt.NDArray[np.bool_],
) -> None:
    """Multiply each row by ``10**shift`` (divide for a negative shift), where the result is exact.

    ``words[i]`` is an unscaled value in two's complement, least 32-bit word first, 1 to 8 words. The kernel writes row
    ``i`` of ``rescaled`` (8 words) and of ``exact``. ``exact[i]`` is True if no digit was lost and the magnitude is
    below ``limit`` (8 words, ``10**precision``); otherwise the row of ``rescaled`` is undefined.

    >>> import numpy as np
    >>> cents = np.array([[150], [125]], dtype=np.uint32)  # 1.50 and 1.25 to one decimal
    >>> limit = np.array([10**9, 0, 0, 0, 0, 0, 0, 0], dtype=np.uint32)
    >>> rescaled, exact = np.empty((2, WORDS), dtype=np.uint32), np.empty(2, dtype=np.bool_)
    >>> rescale_decimals(cents, -1, limit, rescaled, exact)
    >>> int(rescaled[0, 0]), exact.tolist()
    (15, [True, False])
    """
    magnitude = np.empty(WORDS, dtype=np.uint64)
    for i in range(words.shape[0]):
        _load(words[i], magnitude)
        negative = _is_negative(magnitude)
        if negative:
            _negate(magnitude)
        lost, left = _ZERO, abs(shift)
        while left > 0 and lost == _ZERO:
            digits = min(left, _DIGITS_PER_STEP)
            power = _power(digits)
            lost = _multiply(magnitude, power) if shift > 0 else _divide(magnitude, power)
            left -= digits
        exact[i] = lost == _ZERO and _is_below(magnitude, limit)
        if negative:
            _negate(magnitude)
        for j in range(WORDS):
            rescaled[i, j] = np.uint32(magnitude[j])


@subroutine
def _add(value: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> None:
    carry = _ZERO
    for j in range(value.size):
        total = value[j] + other[j] + carry
        value[j] = total & _LOW_32
        carry = total >> _SHIFT


@subroutine
def _times_ten_to(value: npt.NDArray[np.uint64], digits: int) -> None:
    negative = _is_negative(value)
    if negative:
        _negate(value)
    while digits > 0:
        step = min(digits, _DIGITS_PER_STEP)
        _multiply(value, _power(step))
        digits -= step
    if negative:
        _negate(value)


@subroutine(allocates=True)
def _floor_by_ten_to(value: npt.NDArray[np.uint64], digits: int) -> bool:
    """Divide by ``10**digits``, rounding down; return True if there was no remainder."""
    negative, exact = _is_negative(value), True
    if negative:
        _negate(value)
    while digits > 0:
        step = min(digits, _DIGITS_PER_STEP)
        exact = _divide(value, _power(step)) == _ZERO and exact
        digits -= step
    if negative:
        _negate(value)
        if not exact:  # subtract one: all bits set is -1
            _add(value, np.full(value.size, _LOW_32))
    return exact


@kernel(allocates=True)
def floor_decimals(
    words: npt.NDArray[np.uint32],
    shift: int,
    plus: npt.NDArray[np.uint64],
    floor: npt.NDArray[np.int64],
    exact: npt.NDArray[np.bool_],
    below: npt.NDArray[np.bool_],
) -> None:
    """Compute ``(words[i] * 10**up + plus) / 10**down`` rounded down, where ``shift`` is ``up`` or ``-down``.

    ``plus`` has enough words for every intermediate value. ``exact`` marks the rows without rounding. A result above
    the int64 range becomes the greatest int64, not exact. A result under the range sets ``below``; its ``floor`` is
    undefined.
    """
    value = np.empty(plus.size, np.uint64)
    for i in range(words.shape[0]):
        _load(words[i], value)
        _times_ten_to(value, max(shift, 0))
        _add(value, plus)
        exact[i] = _floor_by_ten_to(value, max(-shift, 0))
        negative = _is_negative(value)
        filler = _LOW_32 if negative else _ZERO
        fits = (value[1] >> np.uint64(31) == _ONE) == negative
        for j in range(2, value.size):
            fits = fits and value[j] == filler
        floor[i] = np.int64(value[0] | (value[1] << _SHIFT)) if fits else np.iinfo(np.int64).max
        exact[i] = exact[i] and fits
        below[i] = negative and not fits


@kernel(allocates=True)
def compare_decimals(
    left: npt.NDArray[np.uint32],
    right: npt.NDArray[np.uint32],
    shift: int,
    plus: npt.NDArray[np.uint64],
    sign: npt.NDArray[np.int8],
) -> None:
    """Compute the sign of ``left[i] + plus - right[i]``, where ``right`` has ``shift`` more digits after the point.

    ``plus`` is at the finer of the two scales, and has enough words for every intermediate value.
    """
    value, other = np.empty(plus.size, np.uint64), np.empty(plus.size, np.uint64)
    for i in range(left.shape[0]):
        _load(left[i], value)
        _times_ten_to(value, max(shift, 0))
        _add(value, plus)
        _load(right[i], other)
        _times_ten_to(other, max(-shift, 0))
        _negate(other)
        _add(value, other)
        if _is_negative(value):
            sign[i] = -1
        else:
            sign[i] = 0
            for j in range(value.size):
                if value[j] != _ZERO:
                    sign[i] = 1
