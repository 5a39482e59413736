"""Check source rows: why each is invalid, whatever goes wrong while it is checked."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import SemistreamError
from semistream.pipelines.spec.row_rules import RowRule, first_broken
from semistream.pipelines.tables.quarantine import UNREADABLE
from semistream.relation.format.row_sizes import is_regular, row_sizes

_RAISE = "raise `memory` to load such rows"


def why_invalid(
    rows: pa.RecordBatch, raw: pa.Array | None, rules: Sequence[RowRule], most_row_bytes: int | None
) -> pa.StringArray:
    """Return for each row why it is invalid, or null if it is valid.

    A row is invalid if it has ``raw`` text, breaks a rule, or is wider than ``most_row_bytes``. It is also invalid if
    it cannot be checked: rows that fail together are halved until those that fail alone are found.

    >>> why_invalid(pa.record_batch({"a": [1, None]}), None, [RowRule("a", not_null=True)], 100).to_pylist()
    [None, 'a is null']
    """
    try:
        return _reasons(rows, raw, rules, most_row_bytes)
    except Exception as error:
        if rows.num_rows <= 1:
            return pa.array([failure_of(error)] * rows.num_rows, pa.string())
    half = rows.num_rows // 2
    parts = [(rows[:half], None if raw is None else raw[:half]), (rows[half:], None if raw is None else raw[half:])]
    return pa.concat_arrays([why_invalid(part, text, rules, most_row_bytes) for part, text in parts])


def failure_of(error: Exception) -> str:
    """Return an error as the reason why a row is invalid."""
    cause = error.__cause__ or error
    return str(cause) if isinstance(cause, SemistreamError | pa.ArrowException) else f"{type(cause).__name__}: {cause}"


def _reasons(
    rows: pa.RecordBatch, raw: pa.Array | None, rules: Sequence[RowRule], most_row_bytes: int | None
) -> pa.StringArray:
    rows.validate(full=True)  # a file may have text that is not UTF-8
    reasons = first_broken(rules, rows)
    if most_row_bytes is not None and not is_regular(rows.schema):
        wide = pa.array(row_sizes(rows) > most_row_bytes)
        reasons = pc.if_else(wide, f"the row takes more than {most_row_bytes:,} bytes; {_RAISE}", reasons)
    if raw is not None and raw.null_count < len(raw):
        reasons = pc.if_else(raw.is_valid(), UNREADABLE, reasons)
    return reasons
