"""The row groups of a Parquet data set, as described by the footers of its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import InvalidArgument, RelationError
from semistream.kernels.array_types import Bools, Int32s, Int64s
from semistream.keys.nested_types import map_children
from semistream.keys.plain_types import plain_schema, plain_type
from semistream.relation.parquet.data_files import ParquetFiles, file_stamp

_BUFFER_BYTES = 64 << 10  # read buffer per column: a chunk is fetched in such pieces, or by Parquet page if larger


@dataclass(frozen=True)
class RowGroups:
    """The non-empty row groups of a data set, file by file.

    ``file`` indexes the data set's files; ``number`` is the group's number in its file. ``compressed`` and
    ``uncompressed`` are bytes of column chunks, by group and by column of the data set. ``hidden`` marks the columns
    whose decoded values may need far more than ``uncompressed``, because a string is stored once and referenced often.
    ``stamps`` detect rewritten files.
    """

    file: Int32s
    number: Int32s
    rows: Int64s
    compressed: Int64s
    uncompressed: Int64s
    hidden: Bools
    stamps: tuple[tuple[int, int], ...]

    @cached_property
    def memory_bytes(self) -> int:
        """Bytes of these arrays and of the stamps and paths of files."""
        arrays = self.file, self.number, self.rows, self.compressed, self.uncompressed
        return sum(array.nbytes for array in arrays) + 512 * len(self.stamps)


def open_file(path: Path) -> pq.ParquetFile:
    """Open a Parquet file for reading column by column in small pieces; errors name the file."""
    try:
        return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False, coerce_int96_timestamp_unit="us")
    except FileNotFoundError:
        raise RelationError(f"{path} was removed after its folder was listed. Open the data set again.") from None
    except pa.ArrowInvalid as error:
        raise RelationError(f"{path} is not a Parquet file, or is damaged: {error}") from None


def decoder_bytes(columns: int) -> int:
    """Return the bytes of memory for reading ``columns`` columns, besides the chunks themselves."""
    return columns * 2 * _BUFFER_BYTES


def read_footers(files: ParquetFiles) -> tuple[pa.Schema, RowGroups]:
    """Return the columns of a data set in plain types, and its row groups.

    The columns are those declared by the data set or found in its first file, followed by the partition columns. Other
    files may have the columns in another order, lack some (read as null) and have more (ignored), as in
    `Relation.build`; but their types must agree.
    """
    schema = None if files.schema is None else _plain(files.schema)
    parts: list[tuple[Int32s, Int32s, Int64s]] = []
    hidden: Bools = np.zeros(0, np.bool_)
    stamps = []
    for i, path in enumerate(files.paths):
        stamps.append(file_stamp(path))
        with open_file(path) as file:
            found = _plain(file.schema_arrow)
            if schema is None:
                schema = _with_partitions(found, files)
            _require_types(path, found, schema, files)
            sizes, coded = _chunk_sizes(file, schema)
        hidden = coded if hidden.size == 0 else hidden | coded
        groups = np.flatnonzero(sizes[:, 0, 0]).astype(np.int32)
        parts.append((np.full(groups.size, i, np.int32), groups, sizes[groups]))
    if schema is None or not len(schema):
        raise RelationError("the data set has no columns; give Parquet files with at least one.")
    if not parts:
        none = np.zeros(0, np.int32)
        parts.append((none, none, np.zeros((0, 3, len(schema)), np.int64)))
    file_, number, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
    flags = hidden if hidden.size else np.zeros(len(schema), np.bool_)
    return schema, RowGroups(file_, number, sizes[:, 0, 0], sizes[:, 1], sizes[:, 2], flags, tuple(stamps))


def _plain(schema: pa.Schema) -> pa.Schema:
    if len(set(schema.names)) < len(schema):
        raise InvalidArgument(f"a file has several columns with the same name: {', '.join(schema.names)}. Rename them.")
    return pa.schema([pa.field(f.name, f.type) for f in plain_schema(schema)])


def _with_partitions(schema: pa.Schema, files: ParquetFiles) -> pa.Schema:
    own = [field for field in schema if field.name not in files.partitions]
    return pa.schema([*own, *(pa.field(name, plain_type(type_)) for name, type_ in files.partitions.items())])


def _require_types(path: Path, found: pa.Schema, schema: pa.Schema, files: ParquetFiles) -> None:
    for field in found:
        if field.name in files.partitions or field.name not in schema.names:
            continue
        wanted = schema.field(field.name).type
        if _narrow(field.type) != _narrow(wanted) and not (files.schema and _is_same_instant(field.type, wanted)):
            where = "the Delta table" if files.schema else f"{files.paths[0]}"
            raise RelationError(
                f"column {field.name!r} is {field.type} in {path} but {wanted} in {where}. Write all files with one "
                "type, or cast the column and build a relation."
            )


def _narrow(type_: pa.DataType) -> pa.DataType:
    """Return the type with 32-bit offsets. Writers choose the width of offsets; the values are the same."""
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_large_list(type_):
        return pa.list_(_narrow(type_.value_type))
    if pa.types.is_list(type_):
        return pa.list_(_narrow(type_.value_type))  # with the default name for the items, as writers choose it
    return map_children(type_, _narrow)


def _is_same_instant(found: pa.DataType, wanted: pa.DataType) -> bool:
    """True if ``found`` is ``wanted`` without its UTC zone: Spark omits the zone of Delta's timestamps in files."""
    stamps = pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted)
    return bool(stamps and found.unit == wanted.unit and found.tz is None and wanted.tz == "UTC")


def _chunk_sizes(file: pq.ParquetFile, schema: pa.Schema) -> tuple[Int64s, Bools]:
    """Return the chunk sizes of a file, and a mask of the columns with values stored once and referenced.

    ``sizes[group]`` has three rows of numbers by column: rows of the group, compressed bytes, uncompressed bytes.
    """
    metadata = file.metadata
    owners = _owners(file.schema_arrow, schema)
    sizes = np.zeros((metadata.num_row_groups, 3, len(schema)), np.int64)
    coded = np.zeros(len(schema), np.bool_)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        sizes[number, 0] = group.num_rows
        for leaf, column in enumerate(owners):
            if column >= 0:
                chunk = group.column(leaf)
                sizes[number, 1, column] += chunk.total_compressed_size
                sizes[number, 2, column] += chunk.total_uncompressed_size
                coded[column] |= chunk.physical_type == "BYTE_ARRAY" and not _is_told(chunk.encodings)
    return sizes, coded


def _is_told(encodings: Sequence[str]) -> bool:
    return not any("DICTIONARY" in encoding or encoding == "DELTA_BYTE_ARRAY" for encoding in encodings)


def _owners(found: pa.Schema, schema: pa.Schema) -> list[int]:
    """Return, for each leaf column of a file, the data set's column it belongs to, or -1 if there is none."""
    owners: list[int] = []
    for field in found:
        owners += [schema.get_field_index(field.name)] * _leaves(field.type)
    return owners


def _leaves(type_: pa.DataType) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        return _leaves(type_.storage_type)
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _leaves(type_.value_type)
    if not pa.types.is_nested(type_):
        return 1
    return sum(_leaves(type_.field(i).type) for i in range(type_.num_fields))
