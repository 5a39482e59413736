"""Compare strings of the stream, as Arrow has them, with those of R's pages."""

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.bytes import address_of, are_same
from semistream.kernels.types import Bools, Bytes, Int32s, Int64s


@njit(cache=True, nogil=True)
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
    """For each pair, whether the stream's string at a position is that of a row of R, whose column stands in ``run``
    page by page as in `semistream.kernels.gather`; gives whether all are.
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
