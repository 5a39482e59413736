"""What ``semistream window`` asks about windows, memory and policies, and how it is read."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from semistream.windows import Tuples

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


def window_length(text: str) -> int | str | Tuples | None:
    """A window as `WindowJoin` takes it: ``400`` instants, ``400 rows``, a duration as ``5 minutes``, or unbounded."""
    text = text.strip().lower()
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
