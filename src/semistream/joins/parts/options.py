"""Checks of operator options: names and values, without building an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from semistream.errors import InvalidArgument

Check = Callable[[str, Any], None]
"""Called with an option's name and value; raises `InvalidArgument` if the value is bad."""


def anything(option: str, value: Any) -> None:
    """Accept every value; the operator itself checks it."""


def at_least(least: int) -> Check:
    """Return a check that accepts None and numbers of at least ``least``.

    >>> at_least(1)("pages_per_step", 4)
    >>> at_least(1)("pages_per_step", 0)
    Traceback (most recent call last):
    semistream.errors.InvalidArgument: pages_per_step is 0; it must be at least 1.
    """

    def check(option: str, value: Any) -> None:
        if value is not None and value < least:
            raise InvalidArgument(f"{option} is {value}; it must be at least {least}.")

    return check


def positive(option: str, value: Any) -> None:
    """Accept numbers greater than 0."""
    if not value > 0:
        raise InvalidArgument(f"{option} is {value}; it must be more than 0.")


def one_of(*names: str) -> Check:
    """Return a check that accepts the given names."""

    def check(option: str, value: Any) -> None:
        if value not in names:
            raise InvalidArgument(f"{option} is {value!r}; give {' or '.join(map(repr, names))}.")

    return check


def require_options(operator: str, known: Mapping[str, Check], options: Mapping[str, Any]) -> None:
    """Raise `InvalidArgument` for unknown options, listing the known ones, and for bad values."""
    for name, value in options.items():
        if name not in known:
            raise InvalidArgument(f"operator {operator!r} has no option {name!r}; it has {', '.join(known)}.")
        known[name](name, value)
