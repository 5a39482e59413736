"""Progress callbacks of measurements."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float], None]
"""Called with the share of the work done, from 0 to 1."""


def unwatched(share: float) -> None:
    """Ignore progress."""
