"""Number the places of pages on disk."""

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.types import Int32s, Int64s


@njit(cache=True, nogil=True)
def number_slots(
    order: npt.NDArray[np.intp],
    file: Int32s,
    offset: Int64s,
    nbytes: Int64s,
    mean_bytes: npt.NDArray[np.float64],
    slot: Int32s,
) -> None:
    """Fill ``slot`` with consecutive numbers in ``order``, that of the disk.

    Bytes between two pages of a file that belong to neither are pages too: as many as ``mean_bytes`` of the file make
    of them, at least one.
    """
    number = 0
    for i in range(order.size):
        page = order[i]
        if i > 0:
            before = order[i - 1]
            number += 1
            if file[before] == file[page]:
                hole = offset[page] - offset[before] - nbytes[before]
                if hole > 0:
                    number += max(1, int(hole / mean_bytes[file[page]] + 0.5))
        slot[page] = number
