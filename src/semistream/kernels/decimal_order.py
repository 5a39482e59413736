"""Order of decimals of up to 256 bits, whatever their scales: the sum with a constant, rounded down or compared.

Values on the way can be longer than any Arrow decimal, so the kernels take as many 32-bit words as the caller says,
each in an entry of 64 bits, least first, in two's complement. (`rescale_decimals` has a fixed number of words instead,
which is faster.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

_DIGITS_PER_STEP = 9  # 10**9 is the largest power of ten in a word, so a step's products fit 64 bits
_SHIFT = np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)
_ZERO, _ONE, _TEN = np.uint64(0), np.uint64(1), np.uint64(10)


@njit(cache=True, nogil=True)
def _negate(value: npt.NDArray[np.uint64]) -> None:
    carry = _ONE
    for j in range(value.size):
        total = (value[j] ^ _LOW_32) + carry
        value[j] = total & _LOW_32
        carry = total >> _SHIFT


@njit(cache=True, nogil=True)
def _multiply(value: npt.NDArray[np.uint64], factor: np.uint64) -> None:
    carry = _ZERO
    for j in range(value.size):
        total = value[j] * factor + carry
        value[j] = total & _LOW_32
        carry = total >> _SHIFT


@njit(cache=True, nogil=True)
def _divide(value: npt.NDArray[np.uint64], divisor: np.uint64) -> np.uint64:
    remainder = _ZERO
    for j in range(value.size - 1, -1, -1):
        total = (remainder << _SHIFT) | value[j]
        value[j] = total // divisor
        remainder = total % divisor
    return remainder


@njit(cache=True, nogil=True)
def _power(digits: int) -> np.uint64:
    power = _ONE
    for _ in range(digits):
        power *= _TEN
    return power


@njit(cache=True, nogil=True)
def _is_negative(value: npt.NDArray[np.uint64]) -> bool:
    return bool(value[value.size - 1] >> np.uint64(31) == _ONE)


@njit(cache=True, nogil=True)
def _load(words: npt.NDArray[np.uint32], value: npt.NDArray[np.uint64]) -> None:
    filler = _LOW_32 if words[words.size - 1] >> np.uint32(31) == 1 else _ZERO
    for j in range(value.size):
        value[j] = np.uint64(words[j]) if j < words.size else filler


@njit(cache=True, nogil=True)
def _add(value: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> None:
    carry = _ZERO
    for j in range(value.size):
        total = value[j] + other[j] + carry
        value[j] = total & _LOW_32
        carry = total >> _SHIFT


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _floor_by_ten_to(value: npt.NDArray[np.uint64], digits: int) -> bool:
    """Divide, rounding down; gives whether nothing was left over."""
    negative, exact = _is_negative(value), True
    if negative:
        _negate(value)
    while digits > 0:
        step = min(digits, _DIGITS_PER_STEP)
        exact = _divide(value, _power(step)) == _ZERO and exact
        digits -= step
    if negative:
        _negate(value)
        if not exact:  # one below: all bits set is -1
            _add(value, np.full(value.size, _LOW_32))
    return exact


@njit(cache=True, nogil=True)
def floor_decimals(
    words: npt.NDArray[np.uint32],
    shift: int,
    plus: npt.NDArray[np.uint64],
    floor: npt.NDArray[np.int64],
    exact: npt.NDArray[np.bool_],
    below: npt.NDArray[np.bool_],
) -> None:
    """``(words[i] * 10**up + plus) / 10**down`` rounded down, where ``shift`` is ``up`` or ``-down``.

    ``plus`` has as many words as the values on the way can need. ``exact`` says where nothing was rounded. Above the
    int64 range ``floor`` is the greatest int64, not exact; where it is under that range ``below`` is set, and ``floor``
    means nothing.
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


@njit(cache=True, nogil=True)
def compare_decimals(
    left: npt.NDArray[np.uint32],
    right: npt.NDArray[np.uint32],
    shift: int,
    plus: npt.NDArray[np.uint64],
    sign: npt.NDArray[np.int8],
) -> None:
    """The sign of ``left[i] + plus - right[i]``, where ``right`` has ``shift`` digits more behind the point.

    ``plus`` is at the finer of the two scales, and has as many words as the values on the way can need.
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
