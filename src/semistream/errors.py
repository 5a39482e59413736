"""The errors semistream raises: one root, each naming the value, the limit and the next step.

What is asked of the numbers that a model is made of.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


class SemistreamError(Exception):
    """Root of every error that semistream raises on purpose."""


class InvalidArgument(SemistreamError, ValueError):
    """An argument has a value that cannot work."""


class ColumnNotFound(SemistreamError, KeyError):
    """A column was named that its table does not have."""

    def __init__(self, column: str, available: Iterable[str], *, where: str) -> None:
        names = list(available)
        self.column, self.available, self.where = column, names, where
        near = difflib.get_close_matches(column, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        self.message = f"{where} has no column {column!r}; it has {', '.join(map(repr, names)) or 'none'}.{hint}"
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message


class KeyTypeError(SemistreamError, TypeError):
    """Join keys have types that cannot be compared without loss."""


class BudgetError(SemistreamError, ValueError):
    """A memory budget cannot be read, or is smaller than ``least_bytes``, the least that works."""

    def __init__(self, message: str, *, least_bytes: int | None = None) -> None:
        super().__init__(message)
        self.least_bytes = least_bytes


class BudgetExceeded(SemistreamError, MemoryError):
    """A buffer was charged beyond the budget: a bug in semistream, never the user's fault."""


class RelationError(SemistreamError):
    """A relation on disk cannot be built, opened or changed."""


class NotARelation(RelationError):
    """The path does not hold a relation."""


class UnsupportedFormat(RelationError):
    """The relation was written in a format that this version does not read."""


class CorruptRelation(RelationError):
    """A file of the relation is truncated or its bytes have changed; the message names it."""


class RelationLocked(RelationError):
    """Another live writer holds the relation."""


class JoinInProgress(SemistreamError, RuntimeError):
    """An operator was driven on before the results of the last call were consumed."""


class JoinFailed(SemistreamError, RuntimeError):
    """An operator was driven on after an error that left some of its tuples half joined; that error is the cause."""


class CalibrationError(SemistreamError):
    """A machine or a disk cannot be measured, or there is no place to keep what was measured."""


class ProfileRefused(SemistreamError):
    """The stored profile of this machine and disk was measured elsewhere, has another format, or is damaged."""


class PipelineError(SemistreamError):
    """A pipeline is not valid, or cannot go on as it is."""


class PipelineRunning(PipelineError):
    """Another process runs the same pipeline."""


class MissingPackage(SemistreamError, ImportError):
    """An optional package is needed that is not installed; the message has the line that installs it."""


class MalformedRecord(SemistreamError, ValueError):
    """A record of a data file cannot be read; the message names the file, the line and the field."""


def require_numbers(model: object, *names: str, least: float | None = None) -> None:
    """Refuse a model if any of these attributes is not finite and above 0, or not from ``least`` on."""
    for name in names:
        value = getattr(model, name)
        if not (value > 0 if least is None else value >= least) or not math.isfinite(value):
            asked = "above 0" if least is None else f"from {least} on"
            raise InvalidArgument(f"{name} is {value}; it must be a finite number {asked}.")
