"""How a measurement says how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float], None]
"""Is told the share of the work that is done, from 0 to 1."""


def unwatched(share: float) -> None:
    """Nobody looks."""
