"""Radix sort of key codes that yields the order of their rows."""

import numpy as np

from semistream.kernels.array_types import Int32s, Int64s, UInt64s
from semistream.kernels.compiler import kernel, subroutine

_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS
_PASSES = 32 // _DIGIT_BITS
_MOVES = 4  # average moves per code when ordering ties of the radix sort, before it gives up


class CodeSorter:
    """Sorter of up to ``rows`` codes, with preallocated scratch memory."""

    def __init__(self, rows: int) -> None:
        self._packed, self._other = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
        self._order = np.empty(rows, np.int32)

    def order(self, codes: Int64s) -> Int32s:
        """Return the rows of ``codes`` in ascending order, sorted stably. The result is valid until the next call."""
        order = self._order[: codes.size]
        if not order_codes(codes, self._packed, self._other, order):
            order[:] = np.argsort(codes, kind="stable")
        return order


def sort_codes(codes: Int64s) -> tuple[Int64s, Int32s]:
    """Return ``codes`` in ascending order and the row of each; rows with equal codes keep their order."""
    order = CodeSorter(codes.size).order(codes)
    return codes[order], order


@kernel(allocates=True)
def order_codes(codes: Int64s, packed: UInt64s, other: UInt64s, order: Int32s) -> bool:
    """Fill ``order`` with the rows of ``codes`` in ascending order; return False on giving up because of ties.

    Each code's distance from the least code, cut to the 32 highest bits that the span needs, is packed with the row
    into one word. The words are radix-sorted by these bits, with only as many passes as the span needs. Codes equal in
    these bits are ordered by insertion; if that takes more than `_MOVES` moves per code, the caller must sort another
    way.
    """
    rows = codes.size
    ascending = True
    least = most = codes[0] if rows else np.int64(0)
    for i in range(rows):
        code = codes[i]
        ascending &= code >= most
        least, most = min(least, code), max(most, code)
    if ascending:
        for i in range(rows):
            order[i] = i
        return True
    # Sort by the unsigned distance from the least code, so that the order of digits is the order of codes.
    start, span = np.uint64(least), np.uint64(most) - np.uint64(least)
    shift = np.uint64(0)
    while (span >> shift) >> np.uint64(32):
        shift += np.uint64(1)
    passes = 1
    while passes < _PASSES and (span >> shift) >> np.uint64(passes * _DIGIT_BITS):
        passes += 1
    counts = np.zeros((passes, _DIGITS), np.int64)
    low = np.uint64(0xFFFFFFFF)
    mask = np.uint64(_DIGITS - 1)
    for i in range(rows):
        key = (np.uint64(codes[i]) - start) >> shift
        packed[i] = (key << np.uint64(32)) | np.uint64(i)
        for digit in range(passes):
            counts[digit, (key >> np.uint64(digit * _DIGIT_BITS)) & mask] += 1
    for digit in range(passes):
        next_place = counts[digit]
        begin = np.int64(0)
        for value in range(_DIGITS):
            count = next_place[value]
            next_place[value] = begin
            begin += count
        position = np.uint64(32 + digit * _DIGIT_BITS)
        for i in range(rows):
            word = packed[i]
            bucket = (word >> position) & mask
            at = next_place[bucket]
            next_place[bucket] = at + 1
            other[at] = word
        packed, other = other, packed
    for i in range(rows):
        order[i] = np.int32(packed[i] & low)
    return shift == np.uint64(0) or _order_ties(codes, packed, order)


@subroutine
def _order_ties(codes: Int64s, packed: UInt64s, order: Int32s) -> bool:
    begin = 0
    left = _MOVES * order.size  # moves left; equal codes do not move, only codes that differ in their lower bits
    for i in range(1, order.size):
        if packed[i] >> np.uint64(32) != packed[i - 1] >> np.uint64(32):
            begin = i
            continue
        row = order[i]
        at = i
        while at > begin and codes[order[at - 1]] > codes[row]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = row
        left -= i - at
        if left < 0:
            return False
    return True
