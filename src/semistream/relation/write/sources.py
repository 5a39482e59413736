"""Sources of a relation's rows: Arrow objects, iterables of record batches, or files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from semistream.errors import InvalidArgument, RelationError
from semistream.keys.plain_types import BatchConverter, plain_schema
from semistream.relation.parquet.data_files import DELTA_LOG
from semistream.storage.disk_errors import disk_errors
from semistream.storage.local_paths import local_path

_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "ipc", ".ipc": "ipc", ".feather": "ipc",
    ".csv": "csv",
}  # fmt: skip
_BATCH_ROWS = 1 << 16
_MOST_TOLD = 600  # characters of Arrow's message
_BATCH_BYTES = 16 << 20  # of values decoded at a time


def open_source(data: Any) -> pa.RecordBatchReader:
    """Open ``data``, in any form that `Relation.build` accepts, as a reader of plain types.

    Dictionaries, views and extension types become the plain type of their values.
    """
    reader = open_as_given(data)
    target = plain_schema(reader.schema)
    return pa.RecordBatchReader.from_batches(target, _plain(reader, target))


def open_as_given(data: Any) -> pa.RecordBatchReader:
    """Open ``data``, in any form that `Relation.build` accepts, as a reader of its own types."""
    if isinstance(data, str | Path):
        return _open_path(local_path(data))
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    if isinstance(data, Iterable):
        return _open_batches(data)
    raise InvalidArgument(
        f"data is a {type(data).__name__}; give an Arrow table (or anything with __arrow_c_stream__), "
        "an iterable of record batches, or a path to Parquet, Arrow IPC or CSV."
    )


def _open_batches(data: Iterable[Any]) -> pa.RecordBatchReader:
    batches = iter(data)
    first = next(batches, None)
    if first is None:
        raise InvalidArgument("data is an iterable with no batches, so its columns are unknown. Give an empty table.")
    if not isinstance(first, pa.RecordBatch | pa.Table):
        raise InvalidArgument(f"data yields {type(first).__name__} objects; it must yield pyarrow record batches.")
    return pa.RecordBatchReader.from_batches(first.schema, _flat(chain([first], batches), first.schema))


def _flat(items: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for item in items:
        if not isinstance(item, pa.RecordBatch | pa.Table) or not item.schema.equals(schema):
            found = item.schema.to_string() if isinstance(item, pa.RecordBatch | pa.Table) else type(item).__name__
            raise InvalidArgument(f"data yields batches that differ: first\n{schema.to_string()}\nthen\n{found}")
        yield from item.to_batches() if isinstance(item, pa.Table) else [item]


def _open_path(path: Path) -> pa.RecordBatchReader:
    if not path.exists():
        raise RelationError(
            f"{path} does not exist; give the path of a Parquet, Arrow IPC or CSV file, or a folder of one kind."
        )
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and p.name[0] not in "._")
    if (path / DELTA_LOG).is_dir():
        raise RelationError(
            f"{path} is a Delta table, and some of its files hold rows that it no longer has. Give its current rows: "
            f"ParquetRelation.open({str(path)!r}).scan(). A join takes the table as it is, as a relation."
        )
    formats = {_FORMATS.get(file.suffix.lower(), "") for file in files}
    if len(formats) != 1 or formats == {""}:
        suffixes = sorted({file.suffix or "(none)" for file in files})
        raise RelationError(
            f"{path} holds files ending in {', '.join(suffixes) or 'nothing'}; give one kind: {', '.join(_FORMATS)}."
        )
    file_format = formats.pop()
    with _readable(path):
        dataset = ds.dataset(path, format=file_format, partitioning="hive" if path.is_dir() else None)
        scanner = dataset.scanner(batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1)
        reader = scanner.to_reader()
    return pa.RecordBatchReader.from_batches(reader.schema, _read(path, reader, validated=file_format == "ipc"))


def _read(path: Path, reader: pa.RecordBatchReader, *, validated: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files. Those of Arrow files are ``validated``: an offset in them may lead out of the file."""
    batches = iter(reader)
    while True:
        with _readable(path):
            batch = next(batches, None)
            if validated and batch is not None:
                batch.validate(full=True)
        if batch is None:
            return
        yield batch


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise `RelationError` if the content of a file cannot be read, and `StorageError` if the disk refuses."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            with disk_errors(path, "read"):
                raise
        told = str(error).replace("\n", " ")[:_MOST_TOLD]
        raise RelationError(f"{path} cannot be read: {told}. Repair the file, or leave it out.") from error


def _plain(reader: pa.RecordBatchReader, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    converter = BatchConverter(target, _BATCH_BYTES)
    for batch in reader:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield from converter.pieces(batch.slice(start, _BATCH_ROWS))
