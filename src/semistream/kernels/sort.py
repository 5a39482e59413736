"""Sort key codes by radix, with the rows they came from."""

import numpy as np
from numba import njit

from semistream.kernels.types import Int32s, Int64s

_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS


@njit(cache=True, nogil=True)
def sort_codes(codes: Int64s) -> tuple[Int64s, Int32s]:
    """``codes`` in ascending order and the row of each; rows with equal codes keep their order.

    Only the bits in which codes differ are sorted by: dense keys take two passes, hashes six.
    """
    rows = codes.size
    order = np.empty(rows, np.int32)
    ascending = True
    least = most = codes[0] if rows else np.int64(0)
    for i in range(rows):
        order[i] = i
        code = codes[i]
        ascending &= code >= most
        least, most = min(least, code), max(most, code)
    if ascending:
        return codes.copy(), order
    # As unsigned distances from the least code, so that the order of digits is the order of codes.
    span = np.uint64(most) - np.uint64(least)
    keys, other_keys = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
    other_order = np.empty(rows, np.int32)
    for i in range(rows):
        keys[i] = np.uint64(codes[i]) - np.uint64(least)
    counts = np.empty(_DIGITS, np.int64)
    shift = np.uint64(0)
    mask = np.uint64(_DIGITS - 1)
    while shift < np.uint64(64) and (span >> shift) > np.uint64(0):
        counts[:] = 0
        for i in range(rows):
            counts[(keys[i] >> shift) & mask] += 1
        begin = np.int64(0)
        for digit in range(_DIGITS):
            count = counts[digit]
            counts[digit] = begin
            begin += count
        for i in range(rows):
            key = keys[i]
            digit = (key >> shift) & mask
            at = counts[digit]
            counts[digit] = at + 1
            other_keys[at] = key
            other_order[at] = order[i]
        keys, other_keys = other_keys, keys
        order, other_order = other_order, order
        shift += np.uint64(_DIGIT_BITS)
    ordered = np.empty(rows, np.int64)
    for i in range(rows):
        ordered[i] = np.int64(keys[i] + np.uint64(least))
    return ordered, order
