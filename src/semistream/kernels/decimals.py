"""Exact change of scale for decimals of up to 256 bits, with a flag where it would lose a digit.

Arrow's own cast either stops at the first value that does not fit or wraps it silently; a join key needs
every row judged on its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

WORDS = 8
"""32-bit words in a row of `rescale_decimals`' result: 256 bits, the widest Arrow decimal."""

_DIGITS_PER_STEP = 9  # 10**9 is the largest power of ten in a word, so a step's products fit 64 bits
_SHIFT = np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)
_ZERO, _ONE, _TEN = np.uint64(0), np.uint64(1), np.uint64(10)


@njit(cache=True, nogil=True)
def _negate(words: npt.NDArray[np.uint64]) -> None:
    carry = _ONE
    for j in range(WORDS):
        total = (words[j] ^ _LOW_32) + carry
        words[j] = total & _LOW_32
        carry = total >> _SHIFT


@njit(cache=True, nogil=True)
def _multiply(words: npt.NDArray[np.uint64], factor: np.uint64) -> np.uint64:
    carry = _ZERO
    for j in range(WORDS):
        total = words[j] * factor + carry
        words[j] = total & _LOW_32
        carry = total >> _SHIFT
    return carry


@njit(cache=True, nogil=True)
def _divide(words: npt.NDArray[np.uint64], divisor: np.uint64) -> np.uint64:
    remainder = _ZERO
    for j in range(WORDS - 1, -1, -1):
        total = (remainder << _SHIFT) | words[j]
        words[j] = total // divisor
        remainder = total % divisor
    return remainder


@njit(cache=True, nogil=True)
def _is_below(words: npt.NDArray[np.uint64], limit: npt.NDArray[np.uint32]) -> bool:
    for j in range(WORDS - 1, -1, -1):
        if words[j] != np.uint64(limit[j]):
            return bool(words[j] < np.uint64(limit[j]))
    return False


@njit(cache=True, nogil=True)
def rescale_decimals(
    words: npt.NDArray[np.uint32],
    shift: int,
    limit: npt.NDArray[np.uint32],
    rescaled: npt.NDArray[np.uint32],
    exact: npt.NDArray[np.bool_],
) -> None:
    """Multiply each row by ``10**shift`` (divide for a negative shift), where that is exact.

    ``words[i]`` is an unscaled value in two's complement, least 32-bit word first, 1 to 8 words. Row ``i``
    of ``rescaled`` (8 words) and ``exact`` are written: ``exact[i]`` says that no digit was lost and that
    the magnitude is below ``limit`` (8 words, ``10**precision``); where it is False the row means nothing.

    >>> import numpy as np
    >>> cents = np.array([[150], [125]], dtype=np.uint32)  # 1.50 and 1.25 to one decimal
    >>> limit = np.array([10**9, 0, 0, 0, 0, 0, 0, 0], dtype=np.uint32)
    >>> rescaled, exact = np.empty((2, WORDS), dtype=np.uint32), np.empty(2, dtype=np.bool_)
    >>> rescale_decimals(cents, -1, limit, rescaled, exact)
    >>> int(rescaled[0, 0]), exact.tolist()
    (15, [True, False])
    """
    width = words.shape[1]
    magnitude = np.empty(WORDS, dtype=np.uint64)
    for i in range(words.shape[0]):
        negative = words[i, width - 1] >> np.uint32(31) == 1
        for j in range(WORDS):
            magnitude[j] = np.uint64(words[i, j]) if j < width else (_LOW_32 if negative else _ZERO)
        if negative:
            _negate(magnitude)
        lost, left = _ZERO, abs(shift)
        while left > 0 and lost == _ZERO:
            digits = min(left, _DIGITS_PER_STEP)
            power = _ONE
            for _ in range(digits):
                power *= _TEN
            lost = _multiply(magnitude, power) if shift > 0 else _divide(magnitude, power)
            left -= digits
        exact[i] = lost == _ZERO and _is_below(magnitude, limit)
        if negative:
            _negate(magnitude)
        for j in range(WORDS):
            rescaled[i, j] = np.uint32(magnitude[j])
