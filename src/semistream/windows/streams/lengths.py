"""Window lengths given by the user: a length of time, `Tuples`, or None, for both streams or for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from semistream.datasets.zipf import whole_number
from semistream.errors import InvalidArgument
from semistream.windows.kernels.held_rows import UNBOUNDED
from semistream.windows.streams.event_time import LONGEST, SIDES, EventTime, Length


@dataclass(frozen=True)
class Tuples:
    """A window of the latest tuples of a stream, whatever their times.

    Parameters
    ----------
    count : int
        Number of tuples, from 1 to 2**61.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from semistream.windows import WindowJoin
    >>> stream, batch = pa.schema([("k", pa.int64())]), pa.record_batch({"k": [1, 1, 1]})
    >>> join = WindowJoin(stream, stream, on="k", window=Tuples(2))
    >>> sum(b.num_rows for b in [*join.push_left(batch), *join.push_right(batch), *join.finish()])
    7
    >>> Tuples(0)
    Traceback (most recent call last):
    semistream.errors.InvalidArgument: a window of tuples is 0; give a whole number from 1 to 2305843009213693952.

    References
    ----------
    WINDOW 2.1, tuple-based windows.
    """

    count: int

    def __post_init__(self) -> None:
        whole_number("a window of tuples", self.count, least=1, most=LONGEST)


OneWindow = Length | Tuples | None
Windows = OneWindow | Mapping[str, OneWindow]


@dataclass(frozen=True)
class WindowLength:
    """Lifetime of the tuples of one stream: ``length`` instants, ``length`` tuples, or unbounded.

    With ``by_tuples``, a tuple lives until ``length`` tuples of its own stream have come after or with it. With
    ``length`` `UNBOUNDED` it lives for ever.
    """

    length: int
    by_tuples: bool

    @classmethod
    def pair(cls, window: Windows, time: EventTime) -> tuple[WindowLength, WindowLength]:
        """Return the lengths for the left and the right stream."""
        if isinstance(window, Mapping):
            if set(window) != set(SIDES):
                raise InvalidArgument(
                    f"window is {dict(window)}; give one length for both streams, or {{'left': ..., 'right': ...}}."
                )
            return cls._of(window["left"], time, "the left window"), cls._of(window["right"], time, "the right window")
        one = cls._of(window, time, "window")
        return one, one

    @classmethod
    def _of(cls, window: OneWindow, time: EventTime, name: str) -> WindowLength:
        if window is None:
            return cls(UNBOUNDED, False)
        if isinstance(window, Tuples):
            return cls(window.count, True)
        return cls(time.length(window, name), False)

    @property
    def bounded(self) -> bool:
        """True if tuples expire."""
        return self.length != UNBOUNDED
