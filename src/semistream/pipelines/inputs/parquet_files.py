"""Divide a source's Parquet files into splits, and find files that do not match the source's schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as is_a

from semistream.errors import PipelineError
from semistream.pipelines.inputs.splits import SourceSplit


@dataclass(frozen=True)
class ParquetInputs:
    """Splits of Parquet files, and the columns in them that the source's schema lacks."""

    splits: list[SourceSplit]
    new_columns: list[str]


def parquet_inputs(files: Sequence[str], schema: pa.Schema, tasks: int, *, stop: bool) -> ParquetInputs:
    """Divide files into splits for ``tasks`` tasks, about two each.

    All rows of a file that lacks a column or has one of another type are invalid; with ``stop``, such a file raises
    `PipelineError`. A source type that holds all values of the file's type matches: the rows are cast.
    """
    opened = [_File.open(path, schema) for path in files]
    if stop and (wrong := [file for file in opened if file.reason is not None]):
        raise PipelineError(
            f"the source has changed: {wrong[0].path}: {wrong[0].reason}. Change the pipeline's schema and start it "
            "again, or send such files to the quarantine (on_schema_change: quarantine)."
        )
    most = max(sum(sum(file.group_bytes) for file in opened) // (2 * tasks), 1)
    splits = [replace(split, stop=stop) for file in opened for split in file.splits(most)]
    return ParquetInputs(splits, sorted({name for file in opened for name in file.new_columns}))


@dataclass(frozen=True)
class _File:
    path: str
    group_bytes: tuple[int, ...]
    group_rows: tuple[int, ...]
    reason: str | None
    new_columns: tuple[str, ...] = ()
    same_types: bool = False

    @classmethod
    def open(cls, path: str, schema: pa.Schema) -> _File:
        try:
            with pq.ParquetFile(path, memory_map=False) as file:
                found, metadata = file.schema_arrow, file.metadata
                groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
                sizes = tuple(group.total_byte_size for group in groups)
                rows = tuple(group.num_rows for group in groups)
        except Exception as error:  # whatever is wrong with its content
            if not Path(path).exists():
                raise PipelineError(
                    f"{path}, a file of the source, was removed before its batch was done. Restore it and start the "
                    "pipeline again."
                ) from error
            require_readable(path, error)
            return cls(path, (), (), f"the file cannot be read: {error}")
        reason = "; ".join(_differences(found, schema)) or None
        new = tuple(name for name in found.names if name not in schema.names)
        same = reason is None and all(found.field(each.name).type == each.type for each in schema)
        return cls(path, sizes, rows, reason, new, same)

    def splits(self, most: int) -> Iterator[SourceSplit]:
        if self.reason is not None:
            yield SourceSplit(self.path, nbytes=sum(self.group_bytes), reason=self.reason)
            return
        groups: list[int] = []
        held = 0
        for group, nbytes in enumerate(self.group_bytes):
            if groups and held + nbytes > most:
                yield self._split(groups, held)
                groups, held = [], 0
            groups.append(group)
            held += nbytes
        if groups:
            yield self._split(groups, held)

    def _split(self, groups: Sequence[int], nbytes: int) -> SourceSplit:
        rows = sum(self.group_rows[group] for group in groups)
        return SourceSplit(
            self.path,
            tuple(groups),
            nbytes,
            rows=rows,
            is_file=self.same_types and len(groups) == len(self.group_rows),
        )


def require_readable(path: str, error: Exception) -> None:
    """Raise `PipelineError` for an error of the file system, which may go away; return if the content is damaged."""
    if isinstance(error, OSError) and error.errno is not None:
        raise PipelineError(
            f"{path}, a file of the source, cannot be read: {error.strerror or error}. Nothing of its batch was "
            "committed; make it readable and start the pipeline again."
        ) from error


def _differences(found: pa.Schema, wanted: pa.Schema) -> Iterator[str]:
    for field in wanted:
        at = found.get_field_index(field.name)
        if found.names.count(field.name) > 1:
            yield f"the file has the column {field.name!r} {found.names.count(field.name)} times"
        elif at < 0:
            yield f"the file has no column {field.name!r}"
        elif not holds_all(field.type, found.field(at).type):
            yield f"the file's column {field.name!r} is {found.field(at).type}, the source's {field.type}"


def holds_all(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """True if ``wide`` holds all values of ``narrow``.

    >>> holds_all(pa.int64(), pa.int32()), holds_all(pa.int32(), pa.int64()), holds_all(pa.string(), pa.int64())
    (True, False, False)
    """
    if wide == narrow or is_a.is_null(narrow):
        return True
    if is_a.is_dictionary(narrow):
        return holds_all(wide, narrow.value_type)
    if is_a.is_integer(wide) and is_a.is_integer(narrow):
        signed = is_a.is_signed_integer(wide)
        if signed == is_a.is_signed_integer(narrow):
            return bool(wide.bit_width >= narrow.bit_width)
        return signed and bool(wide.bit_width > narrow.bit_width)
    if is_a.is_floating(wide):
        return bool(is_a.is_floating(narrow) and wide.bit_width >= narrow.bit_width)
    if is_a.is_decimal(wide) and is_a.is_decimal(narrow):
        whole = wide.precision - wide.scale >= narrow.precision - narrow.scale
        return bool(whole and wide.scale >= narrow.scale)
    if is_a.is_timestamp(wide) and is_a.is_timestamp(narrow):
        return (wide.tz is None) == (narrow.tz is None) and narrow.unit != "ns"
    texts = (is_a.is_string, is_a.is_large_string, is_a.is_string_view)
    if any(test(wide) for test in texts):
        return any(test(narrow) for test in texts)
    return bool(is_a.is_binary(wide) and (is_a.is_large_binary(narrow) or is_a.is_fixed_size_binary(narrow)))
