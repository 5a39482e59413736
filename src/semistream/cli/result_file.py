"""Write results to one file, atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from semistream.errors import InvalidArgument
from semistream.storage.local_files import whole_file
from semistream.storage.local_paths import local_path

_WRITERS: dict[str, Callable[[Any, pa.Schema], Any]] = {
    ".parquet": pyarrow.parquet.ParquetWriter,
    ".arrow": pa.ipc.new_file,
    ".csv": pyarrow.csv.CSVWriter,
}
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 32 << 20


def require_writable(out: Path) -> tuple[Path, Callable[[Any, pa.Schema], Any]]:
    """Return the local path of a result file and its writer; raise `InvalidArgument` if it could not be written."""
    out = local_path(out)
    open_writer = _WRITERS.get(out.suffix.lower())
    if open_writer is None:
        raise InvalidArgument(f"--out is {str(out)!r}; its name must end in one of {', '.join(_WRITERS)}.")
    if out.is_dir():
        raise InvalidArgument(f"--out is {str(out)!r}, a folder; name a file in it.")
    if not out.parent.is_dir():
        raise InvalidArgument(f"--out is {str(out)!r}, but there is no folder {str(out.parent)!r}. Create it first.")
    return out, open_writer


def write_results(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: Path) -> int:
    """Write ``batches`` to ``out`` in the format of its suffix, and return the file's size in bytes.

    They go to a temporary file in the same folder, renamed to ``out`` once all of it is on disk. If anything fails, the
    temporary file is removed and an earlier ``out`` stays as it was.
    """
    out, open_writer = require_writable(out)
    with whole_file(out) as file:
        with open_writer(file, schema) as writer:
            for batch in regroup(batches):
                writer.write_batch(batch)
        return file.tell()


def regroup(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge small batches into large ones, since each becomes a row group of the file."""
    held: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        nbytes += batch.nbytes
        if rows >= _GROUP_ROWS or nbytes >= _GROUP_BYTES:
            yield pa.concat_batches(held)
            held, rows, nbytes = [], 0, 0
    if rows:
        yield pa.concat_batches(held)
