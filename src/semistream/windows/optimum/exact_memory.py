"""Exact memory: the number of tuples that a window join must be able to keep to lose nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.windows.optimum.flow_graph import Allocation
from semistream.windows.optimum.timeline import Times, Unit, arrival_times


def exact_memory(
    left_times: npt.ArrayLike,
    right_times: npt.ArrayLike,
    *,
    window: int | tuple[int | None, int | None] | None,
    unit: Unit = "time",
    allocation: Allocation = "fixed",
) -> int:
    """Return the least memory, in tuples, with which a `WindowJoin` of streams with these times evicts no tuple.

    The result holds for all keys. Tuples with null keys count too, although they need no memory. A policy that learns
    needs more memory, for its sketch.

    With one tuple of each stream at every instant it is 2 w - 2, not 2 w: arriving tuples are always seen, and tuples
    that no later instant can use need not be kept.

    Parameters
    ----------
    left_times, right_times : array of int
        Arrival times of the tuples of each stream: whole instants in ascending order.
    window : int, None or a tuple of two
        Lifetime of a tuple, in instants or in tuples (``unit``), or None if tuples never expire; one for both streams,
        or one for each.
    unit : {"time", "tuples"}
        Unit of ``window``.
    allocation : {"fixed", "variable"}
        ``"fixed"``: each stream has half of the memory. ``"variable"``: both share it.

    Examples
    --------
    >>> exact_memory(np.arange(5600), np.arange(5600), window=400)
    798

    References
    ----------
    WINDOW 5.2.1, footnote 1.
    """
    left = arrival_times("left", left_times, np.size(left_times))
    right = arrival_times("right", right_times, np.size(right_times))
    lengths = window if isinstance(window, tuple) else (window, window)
    for length in lengths:
        if length is not None and length < 1:
            raise InvalidArgument(f"window is {window!r}; give at least 1, or None if tuples never expire.")
    instants = np.unique(np.concatenate([left, right]))
    of_left, of_right = (
        _kept_after(times, length, unit, instants) for times, length in zip((left, right), lengths, strict=True)
    )
    if allocation == "variable":
        return int((of_left + of_right).max(initial=0))
    # The left stream has the larger half of an odd memory.
    return int(max(2 * of_left.max(initial=0) - 1, 2 * of_right.max(initial=0), 0))


def _kept_after(times: Times, window: int | None, unit: Unit, instants: Times) -> Int64s:
    """Return the number of tuples of a stream kept after each instant, for arrivals one time unit later."""
    arrived = np.searchsorted(times, instants, side="right")
    if window is None:
        return arrived
    if unit == "tuples":
        return np.minimum(arrived, window)
    return arrived - np.searchsorted(times, instants + 1 - window, side="right")
