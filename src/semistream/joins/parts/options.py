"""The options of operators: their names, and checks of their values that need no operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from semistream.errors import InvalidArgument

Check = Callable[[str, Any], None]
"""Refuses a bad value of the option it is told the name of."""


def anything(option: str, value: Any) -> None:
    """Accept every value; the operator checks it itself."""


def at_least(least: int) -> Check:
    """Accept None and numbers from ``least`` on.

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
    """Accept numbers above 0."""
    if not value > 0:
        raise InvalidArgument(f"{option} is {value}; it must be more than 0.")


def one_of(*names: str) -> Check:
    """Accept some words."""

    def check(option: str, value: Any) -> None:
        if value not in names:
            raise InvalidArgument(f"{option} is {value!r}; give {' or '.join(map(repr, names))}.")

    return check


def require_options(operator: str, known: Mapping[str, Check], options: Mapping[str, Any]) -> None:
    """Refuse options that an operator does not have, naming those it has, and bad values of those it has."""
    for name, value in options.items():
        if name not in known:
            raise InvalidArgument(f"operator {operator!r} has no option {name!r}; it has {', '.join(known)}.")
        known[name](name, value)
