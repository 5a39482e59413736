"""Errors of a pipeline's step say which step it is, and speak of the pipeline's own settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from semistream.budget import format_bytes
from semistream.errors import BudgetError, ColumnNotFound, InvalidArgument, KeyTypeError, NotARelation
from semistream.etl.source_spec import RESERVED


@contextmanager
def errors_of_step(number: int, label: str, *, steps: int, memory: int) -> Iterator[None]:
    """Let errors in the block be those of a step by ``number`` and ``label``, of so many that join.

    ``memory`` is what it has of the pipeline's.

    >>> with errors_of_step(2, "products", steps=3, memory=100):
    ...     raise ColumnNotFound("x", ["__row", "id"], where="the stream")
    Traceback (most recent call last):
    ...
    semistream.errors.ColumnNotFound: step 2 (products): the stream has no column 'x'; it has 'id'.
    """
    step = f"step {number} ({label})"
    try:
        yield
    except ColumnNotFound as error:
        known = [name for name in error.available if not name.startswith(RESERVED)]
        raise ColumnNotFound(error.column, known, where=f"{step}: {error.where}") from error
    except BudgetError as error:
        if error.least_bytes is None:
            raise
        least = steps * error.least_bytes
        raise BudgetError(
            f"{step} has {format_bytes(memory)} of each worker's memory, its share beside the other {steps - 1} steps "
            f"that join, and needs at least {format_bytes(error.least_bytes)}. Raise the pipeline's memory to at least "
            f"{format_bytes(least)} ({least} bytes).",
            least_bytes=least,
        ) from error
    except (InvalidArgument, KeyTypeError, NotARelation) as error:
        raise type(error)(f"{step}: {error}") from error
