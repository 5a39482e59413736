"""Sources of a relation's rows: Arrow objects, iterables of record batches, or files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from semistream.errors import InvalidArgument, RelationError
from semistream.relation.format.nested_types import map_children

_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "ipc", ".ipc": "ipc", ".feather": "ipc",
    ".csv": "csv",
}  # fmt: skip
_BATCH_ROWS = 1 << 16


def open_source(data: Any) -> pa.RecordBatchReader:
    """Open ``data``, in any form that `Relation.build` accepts, as a reader of storable types.

    Dictionaries, views and extension types become the plain type of their values.
    """
    reader = _open(data)
    target = pa.schema([field.with_type(storable(field.type, field.name)) for field in reader.schema])
    return pa.RecordBatchReader.from_batches(target, _normalised(reader, target))


def _open(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, str | Path):
        return _open_path(Path(data))
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
    formats = {_FORMATS.get(file.suffix.lower(), "") for file in files}
    if len(formats) != 1 or formats == {""}:
        suffixes = sorted({file.suffix or "(none)" for file in files})
        raise RelationError(
            f"{path} holds files ending in {', '.join(suffixes) or 'nothing'}; give one kind: {', '.join(_FORMATS)}."
        )
    dataset = ds.dataset(path, format=formats.pop(), partitioning="hive" if path.is_dir() else None)
    scanner = dataset.scanner(batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1)
    return scanner.to_reader()


def storable(type_: pa.DataType, name: str, *, nested: bool = False) -> pa.DataType:
    """Return the plain type in which pages store a column of type ``type_``; ``name`` is for error messages."""
    t = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return storable(type_.storage_type, name, nested=nested)
    if t.is_dictionary(type_) or (t.is_run_end_encoded(type_) and not nested):
        return storable(type_.value_type, name, nested=nested)
    if t.is_string_view(type_):
        return pa.string()
    if t.is_binary_view(type_):
        return pa.binary()
    has_own_layout = t.is_union(type_) or t.is_list_view(type_) or t.is_large_list_view(type_)
    if has_own_layout or (nested and (t.is_null(type_) or t.is_run_end_encoded(type_))):
        raise InvalidArgument(
            f"column {name!r} has {type_} in its type, which pages cannot store. Cast the column, or drop it."
        )
    return map_children(type_, lambda child: storable(child, name, nested=True))


def _normalised(reader: pa.RecordBatchReader, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            piece = batch.slice(start, _BATCH_ROWS)
            columns = [plain(column, field.type) for column, field in zip(piece.columns, target, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=target)


def plain(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a column to ``target``, the storable type of its values."""
    if isinstance(column, pa.ExtensionArray):
        return plain(column.storage, target)
    if pa.types.is_run_end_encoded(column.type):
        return plain(pc.run_end_decode(column), target)
    return column if column.type == target else column.cast(target)
