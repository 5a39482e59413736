"""Copy and compare byte strings with the C library's memcpy and memcmp.

`copy_bytes` and `are_same` take raw addresses and check no bounds. Take an array's address once, outside the loop.
`same_strings` compares strings of a stream's Arrow column with strings in R's pages.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types

from semistream.kernels.array_types import Bools, Bytes, Int32s, Int64s
from semistream.kernels.compiler import kernel, part

_memcpy: Any = types.ExternalFunction("memcpy", types.uintp(types.uintp, types.uintp, types.uintp))
_memcmp: Any = types.ExternalFunction("memcmp", types.int32(types.uintp, types.uintp, types.uintp))


@part
def address_of(array: Bytes) -> np.int64:
    """Return the address of an array's first byte."""
    return np.int64(array.ctypes.data)


@part
def copy_bytes(target: int, source: int, size: int) -> None:
    """Copy ``size`` bytes from one address to another; the ranges must not overlap."""
    _memcpy(np.uint64(target), np.uint64(source), np.uint64(size))


@part
def are_same(one: int, other: int, size: int) -> bool:
    """True if the ``size`` bytes at both addresses are equal."""
    return _memcmp(np.uint64(one), np.uint64(other), np.uint64(size)) == 0


@kernel
def same_strings(
    data: Bytes,
    own_offsets: npt.NDArray[Any],
    positions: Int64s,
    run: Bytes,
    offsets: npt.NDArray[Any],
    starts: Int64s,
    data_starts: Int64s,
    page: Int32s,
    row: Int32s,
    out: Bools,
) -> bool:
    """Compare pairs of a stream string and an R string; return True if all pairs are equal.

    Pair ``i`` is the stream string at ``positions[i]`` and the R string at ``row[i]`` of ``page[i]``; ``out[i]`` takes
    the result. R's column lies in ``run`` page by page, as in `semistream.relation.read.kernels.gather`.
    """
    here, there = address_of(data), address_of(run)
    every = True
    for i in range(positions.size):
        left = np.int64(own_offsets[positions[i]])
        size = np.int64(own_offsets[positions[i] + 1]) - left
        at = starts[page[i]] + row[i]
        right = np.int64(offsets[at])
        same = np.int64(offsets[at + 1]) - right == size
        if same:
            same = are_same(here + left, there + data_starts[page[i]] + right, size)
        out[i] = same
        every &= same
    return every
