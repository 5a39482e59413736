"""Timeline: the instants at which the tuples of two streams arrive, and the end of each tuple's window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bools, Int64s

Times: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Window: TypeAlias = float | npt.NDArray[Any] | None
Unit: TypeAlias = Literal["time", "tuples"]


@dataclass(frozen=True)
class Lifetimes:
    """Tuples of a stream in order of arrival.

    ``at`` is the number of the instant at which each tuple arrives. ``end`` is the number of the first instant at
    which it has left the window, or the number of instants if it never does. Both are equal for a tuple that is in no
    window: in a window of tuples, if more tuples arrived with it than the window holds.
    """

    at: Int64s
    end: Int64s

    @property
    def expire_in_order(self) -> bool:
        """True if no tuple leaves the window before one that arrived earlier."""
        return bool((np.diff(self.end) >= 0).all())

    @property
    def in_window(self) -> Bools:
        """Mask of the tuples in the window on arrival; the others join nothing."""
        return self.end > self.at


@dataclass(frozen=True)
class Timeline:
    """Two streams on one time axis; ``instants`` holds each time of an event once, in order, and the rest index it."""

    instants: Times
    left: Lifetimes
    right: Lifetimes

    @classmethod
    def of(
        cls,
        left_times: Times,
        right_times: Times,
        window: Window | tuple[Window, Window],
        unit: Unit = "time",
        changes: Iterable[float] = (),
    ) -> Timeline:
        """Line up two streams with one ``window``, or one each; ``changes`` are the times of further events.

        >>> line = Timeline.of(np.array([0, 1, 4]), np.array([1, 9]), window=4)
        >>> line.instants.tolist(), line.left.at.tolist(), line.left.end.tolist()
        ([0, 1, 4, 9], [0, 1, 2], [2, 3, 3])
        """
        both = np.concatenate([left_times, right_times])
        within = [t for t in changes if both.size and both.min() < t <= both.max()]
        instants = np.unique(np.concatenate([both, within]) if within else both)
        windows = window if isinstance(window, tuple) else (window, window)
        if len(windows) != 2:
            raise InvalidArgument(
                f"window has {len(windows)} parts; give one, or two for the left and the right stream."
            )
        sides = (("left", left_times, windows[0]), ("right", right_times, windows[1]))
        left, right = (_arrivals(name, times, length, unit, instants) for name, times, length in sides)
        return cls(instants, left, right)


def arrival_times(name: str, times: npt.ArrayLike | None, rows: int) -> Times:
    """Return ``times`` as an array for ``rows`` tuples; None means one tuple at each of the instants 0, 1, 2, ..."""
    if times is None:
        return np.arange(rows, dtype=np.int64)
    array = np.asarray(times)
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        array = array.astype(np.int64)
    elif array.dtype.kind == "f":
        array = array.astype(np.float64)
    elif array.size == 0:
        array = np.empty(0, dtype=np.int64)
    else:
        raise InvalidArgument(f"{name} times are {array.dtype}; give whole numbers or floats, such as seconds.")
    if array.shape != (rows,):
        raise InvalidArgument(
            f"{name} has {rows} tuples and times of shape {array.shape}; give one time for each tuple."
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidArgument(f"{name} times contain {array[~np.isfinite(array)][0]}; give finite ones.")
    late = np.flatnonzero(np.diff(array) < 0)
    if late.size:
        at = int(late[0])
        raise InvalidArgument(
            f"{name} tuple {at + 1} arrives at {array[at + 1]}, before tuple {at} at {array[at]}; sort by time first."
        )
    return array


def _arrivals(name: str, times: Times, window: Window, unit: Unit, instants: Times) -> Lifetimes:
    at = np.searchsorted(instants, times).astype(np.int64)
    if window is None:
        return Lifetimes(at, np.full(times.size, instants.size, dtype=np.int64))
    length = np.asarray(window)
    if length.dtype.kind not in "iuf" or length.shape not in ((), times.shape) or not (length > 0).all():
        raise InvalidArgument(
            f"window of {name} is {window!r}; give a length above 0, an array of one for each of the {times.size} "
            "tuples, or None if they never expire."
        )
    if unit == "time":
        with np.errstate(over="ignore"):
            expiry = times + length
        end = np.searchsorted(instants, expiry)
        end[expiry < times] = instants.size  # beyond 64 bits
        end = np.maximum(end, at + 1)  # a window below the resolution of floats still covers the tuple's own instant
    elif unit == "tuples":
        if length.dtype.kind == "f":
            raise InvalidArgument(f"window of {name} is {window!r} tuples; give a whole number.")
        pushed_out_by = np.minimum(np.arange(times.size) + np.minimum(length, times.size), times.size)
        end = np.append(at, instants.size)[pushed_out_by]
    else:
        raise InvalidArgument(f"unit is {unit!r}; give 'time' or 'tuples'.")
    return Lifetimes(at, end.astype(np.int64))
