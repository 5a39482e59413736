"""Check rows: why each is invalid, whatever goes wrong while it is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import SemistreamError
from semistream.pipelines.spec.row_rules import RowRule, first_broken
from semistream.pipelines.tables.quarantine import UNREADABLE
from semistream.relation.format.row_sizes import is_regular, row_sizes

Result = TypeVar("Result")
Check = Callable[[pa.RecordBatch], pa.StringArray]
"""Function that returns for each row why it is invalid, or null if it is valid. It may fail."""


def in_parts(
    rows: pa.RecordBatch, work: Callable[[int, pa.RecordBatch], Result], begin: int = 0
) -> Iterator[tuple[int, pa.RecordBatch, Result | Exception]]:
    """Yield parts of rows in their order, from where each begins, with the result of ``work``, or a row with its error.

    Rows that fail together are halved until those that fail alone are found, whatever the error.
    """
    result: Result | Exception
    try:
        result = work(begin, rows)
    except Exception as error:
        result = error
    if isinstance(result, Exception) and rows.num_rows > 1:
        half = rows.num_rows // 2
        yield from in_parts(rows[:half], work, begin)
        yield from in_parts(rows[half:], work, begin + half)
    else:
        yield begin, rows, result


def why_each(rows: pa.RecordBatch, check: Check) -> pa.StringArray:
    """Return the results of a check. A row for which it fails, whatever the error, is invalid.

    >>> small = lambda rows: rows.column("a").cast("int8").cast("string")
    >>> why_each(pa.record_batch({"a": [1, 2, 300]}), small).to_pylist()
    ['1', '2', 'Integer value 300 not in range: -128 to 127']
    """
    reasons = [
        pa.array([failure_of(found)] * part.num_rows, pa.string()) if isinstance(found, Exception) else found
        for _, part, found in in_parts(rows, lambda _, part: check(part))
    ]
    return reasons[0] if len(reasons) == 1 else pa.concat_arrays(reasons)


def why_invalid(
    rows: pa.RecordBatch, raw: pa.Array | None, rules: Sequence[RowRule], most_row_bytes: int | None
) -> pa.StringArray:
    """Return for each row of a source why it is invalid, or null if it is valid.

    A row is invalid if it has ``raw`` text, breaks a rule, is wider than ``most_row_bytes``, or cannot be checked.

    >>> why_invalid(pa.record_batch({"a": [1, None]}), None, [RowRule("a", not_null=True)], 100).to_pylist()
    [None, 'a is null']
    """
    reasons = why_each(rows, partial(_broken, rules, most_row_bytes))
    if raw is not None and raw.null_count < len(raw):
        reasons = pc.if_else(raw.is_valid(), UNREADABLE, reasons)
    return reasons


def too_wide(rows: pa.RecordBatch, most_row_bytes: int | None, reasons: pa.StringArray) -> pa.StringArray:
    """Return ``reasons`` with one for each row of more than ``most_row_bytes`` (None: any width will do)."""
    if most_row_bytes is None or is_regular(rows.schema):
        return reasons
    wide = pa.array(row_sizes(rows) > most_row_bytes)
    text = f"the row takes more than {most_row_bytes:,} bytes; raise `memory` to load such rows"
    return pc.if_else(wide, text, reasons)


def failure_of(error: Exception) -> str:
    """Return an error as the reason why a row is invalid."""
    cause = error.__cause__ or error
    return str(cause) if isinstance(cause, SemistreamError | pa.ArrowException) else f"{type(cause).__name__}: {cause}"


def _broken(rules: Sequence[RowRule], most_row_bytes: int | None, rows: pa.RecordBatch) -> pa.StringArray:
    rows.validate(full=True)  # a file may have text that is not UTF-8
    return too_wide(rows, most_row_bytes, first_broken(rules, rows))
