"""What ``semistream window`` asks about windows, memory and policies, and how it is read."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from semistream.errors import InvalidArgument

if TYPE_CHECKING:
    from semistream.windows import Tuples
    from semistream.windows.lengths import Windows

_ROWS = re.compile(r"(\d+)\s*(?:rows?|tuples?)")
_NUMBER = re.compile(r"-?\d+")
UNBOUNDED = "unbounded"


class PolicyName(StrEnum):
    """Who leaves when the memory is full, as `semistream.windows.POLICIES` has them."""

    prob = "prob"
    life = "life"
    expected = "expected"
    random = "random"


class AllocationName(StrEnum):
    """How two streams share a memory, as `semistream.windows.WindowJoin` has it."""

    fixed = "fixed"
    variable = "variable"


class Frequencies(StrEnum):
    """Where policies know from how often keys come: learnt on the way, or those of the whole streams (WINDOW 5.2)."""

    learnt = "learnt"
    streams = "streams"


def window_lengths(text: str) -> Windows:
    """Windows as `WindowJoin` takes them: one for both streams, or that of the left and that of the right one.

    Either is ``400`` instants, ``400 rows``, a duration as ``5 minutes``, or unbounded.
    """
    left, comma, right = (part.strip().lower() for part in text.partition(","))
    if not comma:
        return _length(left)
    if not left or not right or "," in right:
        raise typer.BadParameter(f"--window is {text!r}; give LENGTH, or LEFT_LENGTH,RIGHT_LENGTH.")
    if UNBOUNDED not in (left, right) and bool(_ROWS.fullmatch(left)) != bool(_ROWS.fullmatch(right)):
        raise InvalidArgument(
            f"--window is {text!r}, rows for one stream and time for the other: the exact result of that cannot be "
            "counted. Give both in rows or both in time; semistream.windows.WindowJoin takes them as they are."
        )
    return {"left": _length(left), "right": _length(right)}


def _length(text: str) -> int | str | Tuples | None:
    if text == UNBOUNDED:
        return None
    if _NUMBER.fullmatch(text):
        return int(text)
    if rows := _ROWS.fullmatch(text):
        from semistream.windows import Tuples

        return Tuples(int(rows[1]))
    return text


def memory_size(text: str) -> int | str:
    """A memory as `WindowJoin` takes it: a number of tuples, or bytes such as ``64MB``."""
    return int(text) if _NUMBER.fullmatch(text.strip()) else text


def time_columns(text: str | None) -> str | dict[str, str] | None:
    """The columns of ``--time``: one name for both streams, or one for each."""
    if text is None:
        return None
    left, equals, right = text.partition("=")
    if not left or (equals and not right):
        raise typer.BadParameter(f"--time is {text!r}; give COLUMN, or LEFT_COLUMN=RIGHT_COLUMN.")
    return {"left": left, "right": right} if equals else left
