"""Systematic sampling with unequal probabilities, in whole numbers."""

import numpy as np
import numpy.typing as npt
from numba import njit

from semistream.kernels.types import Bools, Int64s


@njit(cache=True, nogil=True)
def draw_systematic(
    order: npt.NDArray[np.intp], sizes: Int64s, certain: int, draws: int, total: int, start: int, chosen: Bools
) -> None:
    """Choose rows in the order given: those with 0 < size < ``certain``, each with probability size * draws / total.

    Sizes are laid one behind the other on a line, ``draws`` times as long as they are; a row is chosen if a multiple
    of ``total`` lies in its stretch. ``start`` is how far after such a multiple the first row begins. No stretch is
    longer than ``total``, so what is added up stays below twice that.
    """
    rest = start
    for row in order:
        if 0 < sizes[row] < certain:
            rest += sizes[row] * draws
            if rest >= total:
                rest -= total
                chosen[row] = True
