"""Recent key frequencies: a count-min sketch for each stream, with decaying counts.

Of a key's two counters only the smaller is raised (conservative update; Estan & Varghese, SIGCOMM 2002). An estimate
is therefore never too low, and too high only if other keys share both counters. All counters are halved from time to
time, which forgets keys that were frequent long ago.
"""

import numpy as np

from semistream.kernels.compiler import part
from semistream.windows.kernels.held_rows import TOTAL, WindowMemory

_ONE, _OTHER = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xC2B2AE3D27D4EB4F)


@part
def _places(cell: int, width: int) -> tuple[np.int64, np.int64]:
    one = np.uint64(cell) * _ONE
    one ^= one >> np.uint64(32)
    other = one * _OTHER
    other ^= other >> np.uint64(29)
    return np.int64(one & np.uint64(width - 1)), np.int64(other & np.uint64(width - 1))


@part
def observe(memory: WindowMemory, side: int, cell: int) -> None:
    """Count one tuple of a stream."""
    counters = memory.counters[side]
    one, other = _places(cell, counters.shape[1])
    count = min(counters[0, one], counters[1, other]) + np.float32(1)
    counters[0, one] = max(counters[0, one], count)
    counters[1, other] = max(counters[1, other], count)
    memory.sums[TOTAL + side] += 1


@part
def estimate(memory: WindowMemory, side: int, cell: int) -> float:
    """Return the recent frequency of a cell in a stream."""
    counters = memory.counters[side]
    one, other = _places(cell, counters.shape[1])
    return np.float64(min(counters[0, one], counters[1, other]))


@part
def decay(memory: WindowMemory) -> None:
    """Halve all counts."""
    for side in range(2):
        for row in range(2):
            for i in range(memory.counters.shape[2]):
                memory.counters[side, row, i] *= np.float32(0.5)
        memory.sums[TOTAL + side] *= 0.5
