"""Exceptions raised by semistream.

All derive from `SemistreamError`. Messages name the offending value, the limit and the next step. Values that come from
the environment, such as passwords, are shown nowhere: messages and reports have the names of their variables.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

_MOST_SHOWN = 80
_LEAST_HIDDEN = 6
_HIDDEN: dict[str, str] = {}  # forms of values from the environment, and what is shown in their place


def hide(value: str, shown: str) -> None:
    """Have all messages and reports of this process show ``shown`` in place of a value, such as a password.

    Values of fewer than six characters, and numbers of fewer than twelve, would hide too much else and are left.
    """
    if len(value) < _LEAST_HIDDEN or (len(value) < 2 * _LEAST_HIDDEN and re.fullmatch(r"[\d.,+-]+", value)):
        return
    for form in forms_of(value):
        _HIDDEN[form] = shown


def forms_of(value: str) -> set[str]:
    """Return the forms in which messages contain a value: as it is, in Python, JSON or a URL, as a path."""
    forms = {value, repr(value)[1:-1], json.dumps(value)[1:-1], quote(value), str(PurePath(value)), value.strip()}
    forms |= {form.replace('"', '\\"') for form in forms} | {form.replace("'", "\\'") for form in forms}
    return {form for form in forms if len(form) >= min(len(value), _LEAST_HIDDEN)}


def hidden(text: str) -> str:
    """Return a text without the values to hide.

    >>> hide("correct horse", "${PASSWORD}")
    >>> hidden("cannot log in with 'correct horse'")
    "cannot log in with '${PASSWORD}'"
    """
    for value in sorted(_HIDDEN, key=len, reverse=True) if _HIDDEN else ():
        text = text.replace(value, _HIDDEN[value])
    return text


def hidden_in(content: Any) -> Any:
    """Return mappings, sequences and texts as they are, without the values to hide; all else unchanged."""
    if isinstance(content, str):
        return hidden(content)
    if isinstance(content, Mapping):
        return {hidden_in(name): hidden_in(value) for name, value in content.items()}
    return [hidden_in(each) for each in content] if isinstance(content, list | tuple) else content


def shortened(value: object) -> str:
    """Return a value as messages show it: its `repr`, without secrets, and not longer than a line.

    >>> shortened("a" * 1000)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa... (1,002 characters)"
    """
    try:
        text = hidden(repr(value))
    except ValueError:  # an int of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 24]}... ({len(text):,} characters)"


class SemistreamError(Exception):
    """Base class of all errors that semistream raises on purpose.

    Most subclasses also derive from a built-in exception, such as `ValueError`. Every message names the offending
    value, the limit and the next step.

    Examples
    --------
    >>> from semistream import MemoryBudget
    >>> try:
    ...     MemoryBudget("lots")
    ... except SemistreamError as error:
    ...     print(error)
    memory is 'lots'; give an int of bytes, "64MB", "1GiB" or "10%" (of the relation).

    References
    ----------
    docs/architecture.md.
    """

    def __str__(self) -> str:
        return hidden(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class InvalidArgument(SemistreamError, ValueError):
    """An argument has an unusable value."""


class ColumnNotFound(SemistreamError, KeyError):
    """A requested column does not exist in its table."""

    def __init__(self, column: str, available: Iterable[str], *, where: str) -> None:
        names = list(available)
        self.column, self.available, self.where = column, names, where
        near = difflib.get_close_matches(column, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        self.message = f"{where} has no column {column!r}; it has {', '.join(map(repr, names)) or 'none'}.{hint}"
        super().__init__(self.message)

    def __str__(self) -> str:
        return hidden(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _column_not_found, (self.column, self.available, self.where)


def _column_not_found(column: str, available: list[str], where: str) -> ColumnNotFound:
    return ColumnNotFound(column, available, where=where)


class StorageError(SemistreamError, OSError):
    """The disk refuses: it is full, or read-only, or a permission is missing. ``errno`` has the system's number."""

    def __str__(self) -> str:
        return hidden(str(self.args[1])) if len(self.args) > 1 else super().__str__()


class KeyTypeError(SemistreamError, TypeError):
    """Join keys have types that cannot be compared without loss."""


class BudgetError(SemistreamError, ValueError):
    """A memory budget cannot be parsed, or is below ``least_bytes``, the smallest budget that works."""

    def __init__(self, message: str, *, least_bytes: int | None = None) -> None:
        super().__init__(message)
        self.least_bytes = least_bytes


class BudgetExceeded(SemistreamError, MemoryError):
    """A buffer was charged beyond the budget. This is always a bug in semistream, never the user's fault."""


class RelationError(SemistreamError):
    """A relation on disk cannot be built, opened or changed."""


BUILD_ONE = "Build one with Relation.build(data, path, key=...)."
"""The next step if there is no relation; the command line names its own command instead."""


class NotARelation(RelationError):
    """The path does not hold a relation."""


class UnsupportedFormat(RelationError):
    """The relation was written in a format that this version cannot read."""


class CorruptRelation(RelationError):
    """A file of the relation is truncated or altered; the message names the file."""


class RelationLocked(RelationError):
    """Another live writer holds the relation's lock."""


class JoinInProgress(SemistreamError, RuntimeError):
    """An operator was called before the results of the previous call were consumed."""


class JoinFailed(SemistreamError, RuntimeError):
    """An operator was called after an error that left some tuples half joined; that error is the cause."""


class JoinInherited(SemistreamError, RuntimeError):
    """A process used a join that its parent had opened before it forked; threads and reads stay with the parent."""


class ResultsConsumed(SemistreamError, RuntimeError):
    """The results of a join were asked for again after they had been returned, or after the join was closed."""


class CalibrationError(SemistreamError):
    """A machine or disk cannot be measured, or the profile cannot be stored."""


class ProfileRefused(SemistreamError):
    """The stored profile of this machine and disk was measured elsewhere, has another format, or is damaged."""


class PipelineError(SemistreamError):
    """A pipeline is invalid, or cannot continue in its current state."""


class PipelineRunning(PipelineError):
    """Another process is running the same pipeline."""


class MissingPackage(SemistreamError, ImportError):
    """An optional package is not installed; the message gives the command that installs it."""


def require_numbers(model: object, *names: str, least: float | None = None) -> None:
    """Raise `InvalidArgument` unless these attributes of ``model`` are finite and above 0, or at least ``least``."""
    for name in names:
        value = getattr(model, name)
        if not (value > 0 if least is None else value >= least) or not math.isfinite(value):
            asked = "above 0" if least is None else f"of at least {least}"
            raise InvalidArgument(f"{name} is {value}; it must be a finite number {asked}.")


def require_names(what: str, value: Any) -> list[str]:
    """Return one name or several as a list; raise `InvalidArgument` for anything else, such as a Spark Column."""
    if isinstance(value, str):
        return [value]
    try:
        names = list(value)
    except TypeError:  # Spark's own error for a Column is one too
        names = [value]
    for name in names:
        if not isinstance(name, str):
            kind = type(value).__name__ if name is value else f"{type(value).__name__} with a {type(name).__name__}"
            raise InvalidArgument(
                f"{what} is a {kind}; give the name of a column, several names, or a mapping of names, such as 'id', "
                "['id', 'day'] or {'product': 'id'}."
            )
    return names


def require_pairs(what: str, value: Any) -> dict[str, str]:
    """Return a mapping of names, or names that stand for themselves; raise `InvalidArgument` for anything else."""
    if not isinstance(value, Mapping):
        return {name: name for name in require_names(what, value)}
    return dict(zip(require_names(what, value.keys()), require_names(what, value.values()), strict=True))
