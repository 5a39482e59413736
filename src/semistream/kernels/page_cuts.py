"""Cut sorted rows into pages of limited size."""

import numpy as np

from semistream.kernels.array_types import Int64s
from semistream.kernels.compiler import kernel


@kernel(allocates=True)
def cut_pages(row_ends: Int64s, page_bytes: int) -> Int64s:
    """Return the first row of each page. A page holds as many rows as fit in ``page_bytes``, and at least one.

    ``row_ends[i]`` is the total size of rows 0..i in bytes. The last page holds whatever rows remain.
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
