"""The two streams of a window join, by name and by number."""

from __future__ import annotations

from typing import Literal

from semistream.errors import InvalidArgument

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
LEFT, RIGHT = 0, 1


def side_number(side: str) -> int:
    """0 for the left stream, 1 for the right one.

    >>> side_number("right")
    1
    """
    if side not in SIDES:
        raise InvalidArgument(f"side is {side!r}; give 'left' or 'right'.")
    return SIDES.index(side)
