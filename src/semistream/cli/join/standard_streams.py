"""Rows on standard input and output, in one of three formats."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from semistream.cli.result_file import regroup
from semistream.errors import InvalidArgument

_WRITERS: dict[str, Callable[[Any, pa.Schema], Any]] = {
    "arrow": pa.ipc.new_stream,
    "csv": pyarrow.csv.CSVWriter,
    "parquet": pyarrow.parquet.ParquetWriter,
}
_NAMES = {"arrow": "an Arrow IPC stream", "csv": "CSV", "parquet": "Parquet"}


def read_stdin(format: str) -> Any:
    """Return the rows of standard input as an Arrow stream, read as they come.

    Parquet has its index at its end, so it is first copied to a temporary file.
    """
    try:
        return _opened(sys.stdin.buffer, format)
    except pa.ArrowException as error:
        raise InvalidArgument(
            f"standard input is not {_NAMES[format]} ({str(error).splitlines()[0]}). Name its format by --format: "
            f"{', '.join(_NAMES)}."
        ) from error


def _opened(source: Any, format: str) -> Any:
    if format == "arrow":
        reader = pa.ipc.open_stream(source)
        return pa.RecordBatchReader.from_batches(reader.schema, map(_sound, reader))
    if format == "csv":
        return pyarrow.csv.open_csv(source)
    copied = tempfile.TemporaryFile()  # noqa: SIM115 (it is read after this function returns)
    shutil.copyfileobj(source, copied)
    copied.seek(0)
    file = pyarrow.parquet.ParquetFile(copied)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that another process sent, once it is known that none of its offsets leads out of it."""
    batch.validate(full=True)
    return batch


def write_stdout(batches: Iterable[pa.RecordBatch], schema: pa.Schema, format: str) -> int:
    """Write batches to standard output, and return the bytes written."""
    sink = pa.PythonFile(sys.stdout.buffer, mode="w")
    with _WRITERS[format](sink, schema) as writer:
        for batch in regroup(batches):
            writer.write_batch(batch)
    nbytes = int(sink.tell())
    sys.stdout.buffer.flush()
    return nbytes
