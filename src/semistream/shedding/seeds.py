"""Seeds and ranks: chance that a replay repeats."""

from __future__ import annotations

import numpy as np
import xxhash

from semistream.kernels.row_ranks import rank_rows
from semistream.kernels.types import UInt64s


def batch_seed(pipeline: str, batch_id: int) -> int:
    """The seed of all that is decided by chance in one batch of a pipeline, from 0 to 2**64 - 1.

    >>> batch_seed("orders", 7) == batch_seed("orders", 7), batch_seed("orders", 7) == batch_seed("orders", 8)
    (True, False)
    """
    return int(xxhash.xxh64_intdigest(f"{batch_id}:{pipeline}".encode()))


def row_ranks(seed: int, part: int, rows: int) -> UInt64s:
    """A rank for each row of a part: all different, and the same whenever seed, part and row are.

    The rows of least rank are a uniform sample of the part, as far as SplitMix64 looks random.
    """
    ranks = np.empty(rows, np.uint64)
    rank_rows(np.uint64(seed), np.uint64(part), ranks)
    return ranks
