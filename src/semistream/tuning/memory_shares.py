"""How one memory is shared among joins that rows go through one after the other."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from semistream.budget import format_bytes
from semistream.costs.key_frequencies import Floats
from semistream.errors import BudgetError

TupleSeconds = Callable[[int], float]
"""Seconds that a tuple takes of a join in a memory of so many bytes; infinite if that is too small."""

_PARTS = 128  # in which the memory is shared out
_TRIED = 14  # sizes that a join is asked about, at least; between them its time is taken to change steadily,
_STEEP = 1.6  # unless one takes so many times as long as the next: then what is between them is asked about, too


def share_memory(joins: Sequence[TupleSeconds], total: int) -> list[int]:
    """Bytes for each join, so that a tuple takes the least time of all together.

    Each is asked about some sizes, and all ways to share the memory out in small parts are compared, one join after
    the other. If no way is enough for all, an error says so.

    >>> share_memory([lambda n: 1e3 / n, lambda n: 9e3 / n], 1280)
    [320, 960]
    """
    if len(joins) == 1:
        return [total]
    seconds = [_curve(join, total) for join in joins]
    best = seconds[0]  # by parts that the joins so far have together
    taken: list[list[int]] = []
    for curve in seconds[1:]:
        sums = [[best[parts - own] + curve[own] for own in range(parts + 1)] for parts in range(_PARTS + 1)]
        taken.append([int(np.argmin(row)) for row in sums])
        best = np.array([min(row) for row in sums])
    if math.isinf(best[_PARTS]):
        raise BudgetError(
            f"memory is {format_bytes(total)}, which is not enough for {len(joins)} joins in a row, however it is "
            "shared out. Raise it."
        )
    parts, shares = _PARTS, []
    for choice in reversed(taken):
        shares.append(choice[parts])
        parts -= choice[parts]
    shares.append(parts)
    return [total * share // _PARTS for share in reversed(shares)]


def _curve(join: TupleSeconds, total: int) -> Floats:
    """A tuple's time by the parts of the memory that a join has."""
    curve = np.full(_PARTS + 1, np.inf)

    def seconds(part: int) -> float:
        return max(join(total * part // _PARTS), 1e-12)

    if math.isinf(seconds(_PARTS)):
        return curve
    least = 1 + bisect_left(range(1, _PARTS), True, key=lambda part: math.isfinite(seconds(part)))
    first = np.unique(np.geomspace(least, _PARTS, _TRIED).round().astype(int))
    found = {part: seconds(part) for part in first.tolist()}
    between = list(pairwise(found))
    while between:  # where it falls at once, as when all of R fits, exactly that size matters
        low, high = between.pop()
        if high - low > 1 and found[low] > _STEEP * found[high]:
            middle = (low + high) // 2
            found[middle] = seconds(middle)
            between += [(low, middle), (middle, high)]
    tried = sorted(found)
    times = np.log([found[part] for part in tried])
    curve[least:] = np.exp(np.interp(np.log(np.arange(least, _PARTS + 1)), np.log(tried), times))
    return curve
