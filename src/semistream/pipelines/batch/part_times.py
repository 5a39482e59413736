"""PartTimes: how long the parts of a batch take on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class PartTimes:
    """Seconds of a batch by part.

    >>> times = PartTimes()
    >>> with times.part("plan"):
    ...     pass
    >>> list(times.take())
    ['plan']
    >>> times.take()
    {}
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the duration of the block to a part."""
        begun = perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + perf_counter() - begun

    def take(self) -> dict[str, float]:
        """Return the seconds by part, and begin anew."""
        taken, self._seconds = self._seconds, {}
        return taken
