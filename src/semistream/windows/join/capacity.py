"""Capacity: the number of tuples, or of bytes, that a window join may keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from semistream.budget import parse_bytes
from semistream.errors import BudgetError, InvalidArgument
from semistream.windows.streams.event_time import SIDES

Allocation = Literal["fixed", "variable"]
Memory = int | str | Mapping[str, int] | None

ENDLESS = 2**62
"""Capacity without a limit."""


@dataclass(frozen=True)
class Capacity:
    """Room for the tuples of each side or, if ``shared``, of both sides together (``left`` then holds all of it).

    Counted in bytes if ``unit_is_bytes``, otherwise in tuples.
    """

    left: int
    right: int
    shared: bool
    unit_is_bytes: bool

    @classmethod
    def of(
        cls, memory: Memory, allocation: str, *, reserved_bytes: int, least_tuple_bytes: int, sketch_tuples: int
    ) -> Capacity:
        """Parse ``memory``: tuples, tuples of each side, a size such as ``"64MB"``, or None for no limit.

        Subtracts ``reserved_bytes`` from a size in bytes, and ``sketch_tuples`` from a number of tuples. A fixed
        allocation gives half of the rest to each side (WINDOW 4.1). A variable allocation shares it between all
        tuples.
        """
        if allocation not in ("fixed", "variable"):
            raise InvalidArgument(f"allocation is {allocation!r}; give 'fixed' or 'variable'.")
        shared = allocation == "variable"
        if memory is None:
            return cls(ENDLESS, ENDLESS, shared, False)
        if isinstance(memory, Mapping):
            return cls(*_of_each(memory, allocation, sketch_tuples), shared, False)
        if isinstance(memory, str):
            whole = parse_bytes(memory)
            least = reserved_bytes + 2 * least_tuple_bytes
            if whole < least:
                raise BudgetError(
                    f"memory is {memory!r} ({whole} bytes), too small for a window join: it needs {reserved_bytes} "
                    "bytes for its priorities and statistics, and room for a tuple of each stream. Raise memory to at "
                    f"least {least} bytes, or give a number of tuples.",
                    least_bytes=least,
                )
            rest = whole - reserved_bytes
        else:
            rest = _tuples(memory, "memory", 1 if shared else 2, sketch_tuples)
        return (
            cls(rest, rest, True, isinstance(memory, str))
            if shared
            else cls(rest - rest // 2, rest // 2, False, isinstance(memory, str))
        )

    @property
    def limited(self) -> bool:
        """True if there is a limit."""
        return self.left < ENDLESS

    def most_tuples(self, least_tuple_bytes: int) -> int:
        """Return the largest number of tuples that fit."""
        units = self.left if self.shared else self.left + self.right
        return units // least_tuple_bytes if self.unit_is_bytes else units


def _of_each(memory: Mapping[str, int], allocation: str, sketch_tuples: int) -> tuple[int, int]:
    if set(memory) != set(SIDES) or allocation != "fixed":
        raise InvalidArgument(
            f"memory is {dict(memory)} with allocation {allocation!r}; a mapping must be {{'left': ..., 'right': ...}} "
            "in tuples, and needs allocation='fixed'."
        )
    share = -(-sketch_tuples // 2)
    left, right = (_tuples(memory[side], f"memory of the {side} stream", 1, share) for side in SIDES)
    return left, right


def _tuples(memory: object, name: str, least: int, sketch: int) -> int:
    """Return the tuples that ``memory`` leaves beside the sketch."""
    if isinstance(memory, int) and not isinstance(memory, bool) and least + sketch <= memory < ENDLESS:
        return memory - sketch
    more = f" and {sketch} more for the sketch of frequencies" if sketch else ""
    raise BudgetError(
        f"{name} is {memory!r}; give at least {least} tuples{more}, a size in bytes such as '64MB', or None (no limit)."
    )
