"""Hash table from key codes to priority classes.

A binary search among a million codes would miss the CPU cache 20 times.
"""

import numpy as np

from semistream.kernels.array_types import Int32s, Int64s
from semistream.kernels.compiler import kernel, part

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@part
def _slot_of(code: int, size: int) -> np.int64:
    mixed = np.uint64(code) * _GOLDEN
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(size - 1))


@kernel
def index_codes(codes: Int64s, slots: Int32s) -> None:
    """Enter the positions of distinct codes into ``slots``: a power of two of them, all -1, and more than codes."""
    for i in range(codes.size):
        at = _slot_of(codes[i], slots.size)
        while slots[at] >= 0:
            at = (at + 1) & (slots.size - 1)
        slots[at] = i


@kernel
def find_classes(wanted: Int64s, codes: Int64s, slots: Int32s, classes: Int32s, out: Int32s) -> None:
    """Write the class of each wanted code to ``out``, 0 for unknown codes."""
    for i in range(wanted.size):
        at = _slot_of(wanted[i], slots.size)
        out[i] = 0
        while slots[at] >= 0:
            if codes[slots[at]] == wanted[i]:
                out[i] = classes[slots[at]]
                break
            at = (at + 1) & (slots.size - 1)
