"""Copy and compare short stretches of bytes, such as strings, by the C library's own functions.

Stretches are named by their addresses: nothing is range-checked. Take an array's address once, outside of the loop.
"""

from typing import Any

import numpy as np
from numba import njit
from numba.core import types

from semistream.kernels.types import Bytes

_memcpy: Any = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))
_memcmp: Any = types.ExternalFunction("memcmp", types.int32(types.uintp, types.uintp, types.uintp))


@njit(inline="always")
def address_of(array: Bytes) -> np.int64:
    """Where an array's bytes start."""
    return np.int64(array.ctypes.data)


@njit(inline="always")
def copy_bytes(target: int, source: int, size: int) -> None:
    """Copy ``size`` bytes from one address to another; they must not overlap."""
    _memcpy(np.uint64(target), np.uint64(source), np.uint64(size))


@njit(inline="always")
def are_same(one: int, other: int, size: int) -> bool:
    """Whether ``size`` bytes at one address are those at another."""
    return _memcmp(np.uint64(one), np.uint64(other), np.uint64(size)) == 0
