"""Ranks of a batch's rows: numbers that look random, are all different, and depend on the seed and the row alone."""

import numpy as np
from numba import njit

from semistream.kernels.types import UInt64s

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@njit(inline="always")
def _mix(z: np.uint64) -> np.uint64:
    """The last steps of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): one to one, so different numbers stay so."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def rank_rows(seed: np.uint64, part: np.uint64, out: UInt64s) -> None:
    """Fill ``out[i]`` with the rank of row ``i`` of a part. No two rows of a part have the same."""
    start = _mix(seed + _GOLDEN) ^ _mix(_mix(part + _GOLDEN) + seed)
    for row in range(out.size):
        out[row] = _mix(start + np.uint64(row) * _GOLDEN)
