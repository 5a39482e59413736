"""Read the rows of Parquet files with updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from semistream.errors import PipelineError
from semistream.pipelines.carried_types import convert_batch
from semistream.pipelines.inputs.parquet_files import parquet_inputs, require_readable
from semistream.pipelines.inputs.splits import SourceSplit
from semistream.pipelines.spec.column_types import column_type
from semistream.pipelines.tables.quarantine import row_texts
from semistream.pipelines.task.batch_task import RAW
from semistream.pipelines.task.row_checks import in_parts

_WHOLE = "Put a whole file with the relation's columns there under that name, and start the pipeline again."


def read_parquet_updates(files: Sequence[Path], columns: Mapping[str, str]) -> pa.Table:
    """Return the rows of files in their order, and as `RAW` the text of those that do not fit the types of ``columns``.

    Raise `PipelineError` for a file that cannot be read, or lacks a column.
    """
    schema = pa.schema([(name, column_type(type_)) for name, type_ in columns.items()])
    inputs = parquet_inputs([str(file) for file in files], schema, 1, stop=False)
    empty = schema.append(pa.field(RAW, pa.string()))
    return pa.Table.from_batches([rows for split in inputs.splits for rows in _rows(split, schema)], empty)


def _rows(split: SourceSplit, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if split.reason is not None:
        raise PipelineError(f"{split.path}, a file with updates, cannot be used: {split.reason}. {_WHOLE}")
    try:
        for batch in split.read(schema.names):
            yield from _fitting(batch.select(schema.names), schema)
    except (pa.ArrowException, OSError) as error:
        require_readable(split.path, error)
        raise PipelineError(f"{split.path}, a file with updates, cannot be read: {error}. {_WHOLE}") from error


def _fitting(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Cast rows; a row for which this fails, whatever the error, becomes its text."""

    def fit(_: int, part: pa.RecordBatch) -> pa.RecordBatch:
        rows = convert_batch(part, schema)
        rows.validate(full=True)
        return rows

    names = [*schema.names, RAW]
    for _, part, rows in in_parts(batch, fit):
        if isinstance(rows, Exception):
            nothing = [pa.nulls(part.num_rows, field.type) for field in schema]
            yield pa.RecordBatch.from_arrays([*nothing, pa.array(row_texts(part), pa.string())], names=names)
        else:
            yield pa.RecordBatch.from_arrays([*rows.columns, pa.nulls(rows.num_rows, pa.string())], names=names)
