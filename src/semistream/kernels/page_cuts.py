"""Cut sorted rows into pages of at most a number of bytes."""

import numpy as np
from numba import njit

from semistream.kernels.array_types import Int64s


@njit(cache=True, nogil=True)
def cut_pages(row_ends: Int64s, page_bytes: int) -> Int64s:
    """First rows of the pages: each page holds as many rows as fit, and at least one.

    ``row_ends[i]`` is the bytes of rows 0..i together. The last page may be cut short by the end of the rows.
    """
    cuts = np.empty(row_ends.size, np.int64)
    pages = 0
    begin = np.int64(0)
    for row in range(row_ends.size):
        if row == 0 or (row_ends[row] - begin > page_bytes):
            cuts[pages] = row
            pages += 1
            begin = row_ends[row - 1] if row else np.int64(0)
    return cuts[:pages]
