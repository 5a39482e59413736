"""Tuples of both streams whose instants are complete, in the order of time, as the kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from semistream.kernels.types import Int32s, Int64s
from semistream.kernels.window_rows import WindowRows
from semistream.windows.condition import RowCodes
from semistream.windows.result_weight import Floats

Scalar = TypeVar("Scalar", bound=np.generic)


def merge_rows(
    times: Sequence[Int64s],
    codes: Sequence[RowCodes],
    classes: Sequence[Int32s | None],
    weights: Sequence[Floats | None],
    costs: Sequence[Int32s | None],
    queued: int | None = None,
) -> WindowRows:
    """The rows of the left and the right stream by (time, side, position); each side is in the order of time.

    If there is a queue, ``queued`` is how many of the first are in it.
    """
    sizes = [side.size for side in times]
    all_times = np.concatenate(times)
    # Two runs in order: a stable sort merges them in one pass.
    order = np.argsort(all_times, kind="stable") if all(sizes) else None

    def merged(parts: Sequence[npt.NDArray[Scalar] | None], empty: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        given = [part for part in parts if part is not None]
        joined = np.concatenate(given) if given else empty
        return joined if order is None or not joined.size else joined[order]

    numbers = np.empty(0, np.int64)
    possible = [np.ones(n, np.bool_) if c.possible is None else c.possible for n, c in zip(sizes, codes, strict=True)]
    return WindowRows(
        side=merged([np.zeros(sizes[0], np.uint8), np.ones(sizes[1], np.uint8)], np.empty(0, np.uint8)),
        time=all_times if order is None else all_times[order],
        number=merged([np.arange(sizes[0]), np.arange(sizes[1])], numbers),
        code=merged([c.code for c in codes], numbers),
        possible=merged(possible if any(c.possible is not None for c in codes) else [], np.empty(0, np.bool_)),
        cell=merged([c.cell for c in codes], numbers),
        first_cell=merged([c.first_cell for c in codes], numbers),
        last_cell=merged([c.last_cell for c in codes], numbers),
        low=merged([c.low for c in codes], numbers),
        high=merged([c.high for c in codes], numbers),
        class_=merged(classes, np.empty(0, np.int32)),
        weight=merged(weights, np.empty(0)),
        cost=merged(costs, np.empty(0, np.int32)),
        queued=np.empty(0, np.bool_) if queued is None else np.arange(all_times.size) < queued,
    )


def largest_instant(times: Int64s) -> int:
    """How many tuples arrive at the instant at which most do; times are in order.

    >>> largest_instant(np.array([1, 1, 1, 2, 5, 5]))
    3
    """
    if not times.size:
        return 0
    ends = np.flatnonzero(np.append(times[1:] != times[:-1], True))
    return int(np.diff(ends, prepend=-1).max())
