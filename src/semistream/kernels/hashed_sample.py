"""Choose tuples by a hash of their key: all tuples of a key or none."""

import numpy as np
from numba import njit

from semistream.kernels.types import Int64s

_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@njit(inline="always")
def _hash(code: int) -> np.uint64:
    """The last steps of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): codes that follow each other lie anywhere."""
    z = np.uint64(code)
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def count_chosen(codes: Int64s, below: np.uint64) -> int:
    """How many codes have a hash below that."""
    chosen = 0
    for code in codes:
        chosen += _hash(code) < below
    return chosen


@njit(cache=True, nogil=True)
def choose_by_hash(codes: Int64s, below: np.uint64, out: Int64s) -> None:
    """The codes with a hash below that, in their order."""
    chosen = 0
    for code in codes:
        if _hash(code) < below:
            out[chosen] = code
            chosen += 1
