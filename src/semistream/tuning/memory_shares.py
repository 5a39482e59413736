"""Division of one memory budget among joins that run one after the other on the same rows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from semistream.budget import format_bytes
from semistream.errors import BudgetError
from semistream.kernels.array_types import Floats

TupleSeconds = Callable[[int], float]
"""Maps the memory of a join in bytes to its seconds per tuple; infinite if the memory is too small."""

_PARTS = 128  # granularity: each join gets a multiple of total / 128
_TRIED = 14  # sizes at which a join is evaluated, at least; times in between are interpolated
_STEEP = 1.6  # ratio of the times at neighbouring sizes above which a size in between is evaluated too


def share_memory(joins: Sequence[TupleSeconds], total: int) -> list[int]:
    """Return the bytes for each join that minimise the total time per tuple.

    Each join is evaluated at some sizes. Dynamic programming over the joins then finds the best division into small
    parts. Raise `BudgetError` if no division is enough for all joins.

    >>> share_memory([lambda n: 1e3 / n, lambda n: 9e3 / n], 1280)
    [320, 960]
    """
    if len(joins) == 1:
        return [total]
    seconds = [_curve(join, total) for join in joins]
    best = seconds[0]  # least time of the joins so far, by the parts they have together
    taken: list[list[int]] = []
    for curve in seconds[1:]:
        sums = [[best[parts - own] + curve[own] for own in range(parts + 1)] for parts in range(_PARTS + 1)]
        taken.append([int(np.argmin(row)) for row in sums])
        best = np.array([min(row) for row in sums])
    if math.isinf(best[_PARTS]):
        raise BudgetError(
            f"memory is {format_bytes(total)}, too little for {len(joins)} joins in a row, however it is divided. "
            "Raise memory."
        )
    parts, shares = _PARTS, []
    for choice in reversed(taken):
        shares.append(choice[parts])
        parts -= choice[parts]
    shares.append(parts)
    return [total * share // _PARTS for share in reversed(shares)]


def _curve(join: TupleSeconds, total: int) -> Floats:
    """Return the time per tuple of a join for each number of parts."""
    curve = np.full(_PARTS + 1, np.inf)

    def seconds(part: int) -> float:
        return max(join(total * part // _PARTS), 1e-12)

    if math.isinf(seconds(_PARTS)):
        return curve
    least = 1 + bisect_left(range(1, _PARTS), True, key=lambda part: math.isfinite(seconds(part)))
    first = np.unique(np.geomspace(least, _PARTS, _TRIED).round().astype(int))
    found = {part: seconds(part) for part in first.tolist()}
    between = list(pairwise(found))
    while between:  # where the time drops sharply, as when all of R fits, the exact size matters
        low, high = between.pop()
        if high - low > 1 and found[low] > _STEEP * found[high]:
            middle = (low + high) // 2
            found[middle] = seconds(middle)
            between += [(low, middle), (middle, high)]
    tried = sorted(found)
    times = np.log([found[part] for part in tried])
    curve[least:] = np.exp(np.interp(np.log(np.arange(least, _PARTS + 1)), np.log(tried), times))
    return curve
