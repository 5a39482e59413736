"""TableWriter: what a worker writes of a table, Parquet files of its own that nobody sees until they are committed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from semistream.errors import PipelineError
from semistream.etl.faults import reached
from semistream.etl.file_stats import file_stats
from semistream.etl.ledger_entries import WrittenFile
from semistream.relation.durable import sync_file

_GROUP_ROWS = 1 << 17  # of a row group, which is held in memory until it is written
_FILE_ROWS = 1 << 24  # of a file
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class TableLayout:
    """Where and how files of a table are written: in the folder ``path``, or ``staging`` within it.

    Their names begin with the ``token`` of who writes them: others may write to the same table. Values of the columns
    ``partition_by`` are in the names of folders, as in Hive's and Delta's tables, and not in the files.
    """

    path: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    staging: str = ""
    token: str = ""

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a file."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


class TableWriter:
    """Writes batches of a table to files, each with a name that no other writer has.

    A file is complete, synced and described by `WrittenFile` when the writer is closed; if it is abandoned, its files
    are removed. What a worker leaves that is killed no table shows.
    """

    def __init__(self, layout: TableLayout, prefix: str) -> None:
        self._layout = layout
        self._prefix = prefix
        self._files: dict[tuple[str | None, ...], _File] = {}
        self._written: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; they have the columns of the table in its order."""
        for values, rows in _partitions(batch, self._layout.partition_by):
            file = self._files.get(values)
            if file is None:
                file = self._files[values] = _File(self._layout, values, self._prefix)
            file.write(rows)
            if file.rows >= _FILE_ROWS:
                self._written.append(self._files.pop(values).close())

    def close(self) -> list[WrittenFile]:
        """Complete all files, and describe them."""
        while self._files:
            _, file = self._files.popitem()
            self._written.append(file.close())
        return self._written

    def abandon(self) -> None:
        """Remove all files."""
        for file in self._files.values():
            file.abandon()
        for written in self._written:
            (Path(self._layout.path) / written.path).unlink(missing_ok=True)


class _File:
    """A file of one partition."""

    def __init__(self, layout: TableLayout, values: tuple[str | None, ...], prefix: str) -> None:
        self._layout = layout
        self._values = dict(zip(layout.partition_by, values, strict=True))
        folders = [f"{name}={_NULL_PARTITION if v is None else quote(v, safe=' ')}" for name, v in self._values.items()]
        name = "-".join([*filter(None, [layout.token]), prefix, uuid.uuid4().hex])
        self._name = "/".join([*filter(None, [layout.staging]), *folders, f"{name}.parquet"])
        self._path = Path(layout.path) / self._name
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self.rows = 0
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, layout.file_schema, compression="zstd", compression_level=1)
        except OSError as error:
            raise self._refused(error) from error

    def write(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self.rows += rows.num_rows
        if self._waiting_rows >= _GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        try:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._layout.file_schema))
        except OSError as error:
            raise self._refused(error) from error
        self._waiting, self._waiting_rows = [], 0

    def close(self) -> WrittenFile:
        if self._waiting:
            self._write_group()
        reached("in a file")
        try:
            self._writer.close()
            sync_file(self._path)
        except OSError as error:
            raise self._refused(error) from error
        metadata = pq.read_metadata(self._path)
        return WrittenFile(
            path=self._name,
            rows=self.rows,
            nbytes=self._path.stat().st_size,
            partition=self._values,
            stats=file_stats(metadata, self._layout.file_schema),
        )

    def abandon(self) -> None:
        self._writer.close()
        self._path.unlink(missing_ok=True)

    def _refused(self, error: OSError) -> PipelineError:
        return PipelineError(
            f"{self._path} cannot be written: {error}. Nothing of the batch was committed; make room or give the right "
            "to write, and start the pipeline again."
        )


def _partitions(
    batch: pa.RecordBatch, partition_by: tuple[str, ...]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """The rows of each combination of values, without the columns that it is made of."""
    if not partition_by:
        yield (), batch
        return
    rows = batch.drop_columns(list(partition_by))
    coded = [pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in partition_by]
    number = np.zeros(batch.num_rows, np.int64)
    for column in coded:
        number = number * len(column.dictionary) + column.indices.to_numpy(zero_copy_only=False)
    for each in np.unique(number).tolist():
        at = np.flatnonzero(number == each)
        values = tuple(partition_text(batch.column(name)[int(at[0])]) for name in partition_by)
        yield values, rows.take(pa.array(at))


def partition_text(value: pa.Scalar) -> str | None:
    """A value as Delta writes that of a partition's column."""
    if not value.is_valid:
        return None
    if pa.types.is_boolean(value.type):
        return "true" if value.as_py() else "false"
    if pa.types.is_timestamp(value.type):
        return str(value.as_py().strftime("%Y-%m-%d %H:%M:%S.%f"))
    return str(value.as_py())
