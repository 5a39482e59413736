"""Quarantine rows: invalid source rows and rejected update rows, each as text with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.pipelines.ledger.entries import Plan, TaskResult
from semistream.pipelines.tables.writer import TableLayout, TableWriter

UNREADABLE = "the row cannot be read with the source's columns and types"
INVALID_SCHEMA = pa.schema([("raw", pa.string()), ("reason", pa.string()), ("batch_id", pa.int64())])


def invalid_rows(batch: int, rows: pa.RecordBatch, raw: pa.Array | None, reasons: pa.Array) -> pa.RecordBatch:
    """Build quarantine rows: the ``raw`` text of unreadable rows, and the values of the others as JSON."""
    texts = pa.array(row_texts(rows, raw), pa.string())
    numbers = pa.repeat(pa.scalar(batch, pa.int64()), len(texts))
    return pa.RecordBatch.from_arrays([texts, reasons, numbers], schema=INVALID_SCHEMA)


def row_texts(rows: pa.RecordBatch, raw: pa.Array | None = None) -> list[str]:
    """Return the ``raw`` text of each row, or its values as JSON if it has none."""
    texts: list[Any] = [None] * rows.num_rows if raw is None else _values(raw)
    if None in texts:
        texts = [as_json(row) if text is None else text for text, row in zip(texts, _rows(rows), strict=True)]
    return texts


def _rows(rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield rows as dictionaries; a repeated column name gets its position as a suffix."""
    names = [f"{name}#{i}" if name in rows.schema.names[:i] else name for i, name in enumerate(rows.schema.names)]
    for values in zip(*map(_values, rows.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; those that Python cannot represent, such as the year 10000, as strings."""
    try:
        return list(column.to_pylist())
    except Exception as error:
        if len(column) > 1:
            half = len(column) // 2
            return _values(column[:half]) + _values(column[half:])
        try:
            bytes_of_text = pa.types.is_string(column.type)
            return [str(column.cast(pa.binary() if bytes_of_text else pa.string())[0].as_py())]
        except pa.ArrowException:
            return [f"({column.type}, which cannot be shown: {error})"]


def as_json(row: Mapping[str, Any]) -> str:
    """Return a row as JSON, with values that JSON lacks as strings.

    >>> as_json({"a": 1, "b": b"\\x01"})
    '{"a": 1, "b": "01"}'
    """
    return json.dumps(row, default=_as_text, ensure_ascii=False)


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def with_rejected(work: TaskResult, plan: Plan, folder: Path, quarantine: TableLayout) -> TaskResult:
    """Write the rejected update rows that a plan names to the quarantine, and return the batch's result with them.

    The files of rejected rows lie in ``folder``.
    """
    writer = TableWriter(quarantine, f"{plan.batch:012d}-0")
    rows = 0
    for name in plan.rejected:
        table = pq.read_table(folder / name)
        rows += table.num_rows
        numbers = pa.repeat(pa.scalar(plan.batch, pa.int64()), table.num_rows)
        columns = [column.combine_chunks() for column in table.columns]
        writer.write(pa.RecordBatch.from_arrays([*columns, numbers], schema=INVALID_SCHEMA))
    files = {**work.files, "invalid": work.files.get("invalid", []) + writer.close()}
    return replace(work, files=files, counts={**work.counts, "invalid_updates": rows})
