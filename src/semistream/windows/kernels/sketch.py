"""How often keys came of late: a count-min sketch for each stream, whose counts decay.

Of the two counters of a key only the lesser is raised (conservative update; Estan & Varghese, SIGCOMM 2002), so that an
estimate is never too low, and too high only if other keys share both counters. All counters are halved from time to
time: keys that were frequent long ago are forgotten.
"""

import numpy as np

from semistream.windows.kernels.held_rows import TOTAL, WindowMemory, part

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
    """Count a tuple of a stream."""
    counters = memory.counters[side]
    one, other = _places(cell, counters.shape[1])
    count = min(counters[0, one], counters[1, other]) + np.float32(1)
    counters[0, one] = max(counters[0, one], count)
    counters[1, other] = max(counters[1, other], count)
    memory.sums[TOTAL + side] += 1


@part
def estimate(memory: WindowMemory, side: int, cell: int) -> float:
    """How often a cell came in a stream of late."""
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
