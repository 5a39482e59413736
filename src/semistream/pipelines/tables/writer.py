"""Write a worker's rows of a table to Parquet files that readers see only after the commit.

`TableWriter` writes the files as `TableLayout` and `ParquetWriting` describe them. `BackgroundWork` encodes,
compresses and copies them in a thread of its own.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from semistream.errors import PipelineError
from semistream.pipelines.ledger.entries import WrittenFile
from semistream.pipelines.ledger.faults import reached
from semistream.pipelines.tables.file_stats import file_stats
from semistream.storage.local_files import sync_file, sync_folder


class BackgroundWork:
    """Thread that runs calls one after the other, in order. At most one call waits, to bound their memory.

    The next `submit` or `wait` raises the error of a failed call; later calls still run. The thread lives from the
    first call until `end`.

    >>> work, done = BackgroundWork(), []
    >>> work.submit(done.append, 1)
    >>> work.submit(done.append, 2)
    >>> work.wait()
    >>> done
    [1, 2]
    >>> work.end()
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._calls: deque[Future[Any]] = deque()

    def submit(self, call: Callable[..., object], *arguments: object) -> None:
        """Queue a call; block while another one waits."""
        while len(self._calls) > 1 or (self._calls and self._calls[0].done()):
            self._calls.popleft().result()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="semistream-background")
        self._calls.append(self._pool.submit(call, *arguments))

    def wait(self) -> None:
        """Wait for all calls, and raise the first error of one."""
        while self._calls:
            self._calls.popleft().result()

    def end(self) -> None:
        """Wait for all calls, ignore their errors, and end the thread."""
        wait(self._calls)
        self._calls.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


@dataclass(frozen=True)
class ParquetWriting:
    """Encoding and compression of Parquet files: small files by default, for tables read often.

    With ``quick``, writing takes a third of the time. ``counted`` names integer or time columns whose values lie close
    to the previous row's; quick files store only their differences.
    """

    quick: bool = False
    counted: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments for `pyarrow.parquet.ParquetWriter`."""
        if not self.quick:
            return {"compression": "zstd", "compression_level": 1}
        encoding = dict.fromkeys(self.counted, "DELTA_BINARY_PACKED")
        return {"compression": "lz4", "use_dictionary": False, "column_encoding": encoding or None}


SMALL_FILES = ParquetWriting()

_GROUP_ROWS = 1 << 16  # rows of a row group; one is held in memory for the background thread while the next fills
_FILE_ROWS = 1 << 24  # rows of a file
_OPEN_FILES = 128  # open files, one for each partition
_NAME_BYTES = 240  # length of a folder name
_JAVAS_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class TableLayout:
    """Location and format of a table's files: in the folder ``path``, or in ``staging`` below it.

    File names begin with ``owner`` if other writers share the folder.

    Values of the columns ``partition_by`` go into folder names, as in Hive and Delta tables, and not into the files. A
    file has about ``file_rows`` rows at most: the batch that reaches the limit is written whole. With ``takes_copies``,
    files may have fewer columns, and readers see nulls in the others.
    """

    path: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    staging: str = ""
    owner: str = ""
    file_rows: int = _FILE_ROWS
    takes_copies: bool = False
    writing: ParquetWriting = SMALL_FILES

    @property
    def file_schema(self) -> pa.Schema:
        """Columns stored in a file: those of the table without the partition columns."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


class TableWriter:
    """Writer of a table's rows to Parquet files with unique names.

    `close` completes and syncs the files and describes each as a `WrittenFile`; `abandon` removes them. Files left by a
    killed worker never become visible. One background thread encodes, compresses and copies for all files; it ends with
    the writer.
    """

    def __init__(self, layout: TableLayout, prefix: str) -> None:
        self._layout = layout
        self._prefix = prefix
        self._files: dict[tuple[str | None, ...], _File] = {}
        self._written: list[WrittenFile] = []
        self._copied: list[WrittenFile] = []
        self._folders: set[Path] = set()
        self._work = BackgroundWork()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows with the table's columns, in its order."""
        for values, rows in _partitions(batch, self._layout.partition_by):
            file = self._files.get(values)
            if file is None:
                file = self._files[values] = _File(self._layout, values, self._prefix, self._work)
                if len(self._files) > _OPEN_FILES:
                    self._complete(max(self._files, key=lambda each: self._files[each].rows))
            file.write(rows)
            if file.rows >= self._layout.file_rows:
                self._complete(values)

    def copy(self, source: Path, rows: int, values: tuple[str | None, ...], *, part: int, came_ms: int) -> None:
        """Copy the file ``source``, with ``rows`` rows, unchanged into the partition with these values."""
        name = _file_name(self._layout, values, self._prefix)
        partition = dict(zip(self._layout.partition_by, values, strict=True))
        counted = {"numRecords": rows}
        copied = WrittenFile(name, rows, source.stat().st_size, partition, counted, part, came_ms)
        self._copied.append(copied)
        self._folders |= _folders_of(self._layout, name)
        self._work.submit(self._copy, source, copied)

    def _copy(self, source: Path, copied: WrittenFile) -> None:
        path = Path(self._layout.path) / copied.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, path)
            sync_file(path)
            if path.stat().st_size != copied.nbytes:
                raise OSError(f"{source} changed during the copy")
        except OSError as error:
            raise _refused(path, error) from error

    def close(self) -> list[WrittenFile]:
        """Complete and sync all files, and return their descriptions."""
        try:
            while self._files:
                self._complete(next(iter(self._files)))
            self._work.wait()
        finally:
            self._work.end()
        self._written += self._copied
        try:
            for folder in sorted(self._folders):
                sync_folder(folder)
        except OSError as error:
            raise PipelineError(f"{self._layout.path} cannot be written: {error}. Nothing was committed.") from error
        return self._written

    def _complete(self, values: tuple[str | None, ...]) -> None:
        file = self._files[values]
        file.write_rest()
        self._work.wait()
        self._written.append(file.close())
        self._folders |= file.folders
        del self._files[values]

    def abandon(self) -> None:
        """Remove all files."""
        self._work.end()
        for file in self._files.values():
            file.abandon()
        self._files.clear()
        for written in [*self._written, *self._copied]:
            with suppress(OSError):  # a copy that failed
                (Path(self._layout.path) / written.path).unlink(missing_ok=True)


class _File:
    """Open Parquet file of one partition."""

    def __init__(self, layout: TableLayout, values: tuple[str | None, ...], prefix: str, work: BackgroundWork) -> None:
        self._layout = layout
        self._work = work
        self._values = dict(zip(layout.partition_by, values, strict=True))
        self._name = _file_name(layout, values, prefix)
        self._path = Path(layout.path) / self._name
        self._unbounded: set[str] = set()
        self._floating = [field.name for field in layout.file_schema if pa.types.is_floating(field.type)]
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self.rows = 0
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, layout.file_schema, **layout.writing.options)
        except OSError as error:
            raise self._refused(error) from error

    def write(self, rows: pa.RecordBatch) -> None:
        self._unbounded.update(name for name in self._floating if pc.any(pc.is_nan(rows.column(name))).as_py())
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self.rows += rows.num_rows
        if self._waiting_rows >= _GROUP_ROWS:
            self.write_rest()

    def write_rest(self) -> None:
        """Queue the gathered rows for writing as a row group."""
        if self._waiting:
            self._work.submit(self._write_group, self._waiting)
            self._waiting, self._waiting_rows = [], 0

    def _write_group(self, rows: list[pa.RecordBatch]) -> None:
        try:
            self._writer.write_table(pa.Table.from_batches(rows, self._layout.file_schema))
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> WrittenFile:
        """Complete and sync the file, and describe it; the background thread must have written all its rows."""
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
            stats=file_stats(metadata, self._layout.file_schema, self._unbounded),
        )

    @property
    def folders(self) -> set[Path]:
        """Folders to sync so that the file's path survives a crash."""
        return _folders_of(self._layout, self._name)

    def abandon(self) -> None:
        with suppress(OSError, pa.ArrowException):  # the footer cannot be written, for example on a full disk
            self._writer.close()
        self._path.unlink(missing_ok=True)

    def _refused(self, error: OSError) -> PipelineError:
        return _refused(self._path, error)


def _refused(path: Path, error: OSError) -> PipelineError:
    return PipelineError(
        f"{path} cannot be written: {error}. Nothing of the batch was committed; free disk space or grant write "
        "permission, and start the pipeline again."
    )


def _file_name(layout: TableLayout, values: tuple[str | None, ...], prefix: str) -> str:
    """Return a unique file name, relative to the table's folder."""
    partition = zip(layout.partition_by, values, strict=True)
    folders = [_folder(name, value, shortened=not layout.staging) for name, value in partition]
    return "/".join([*filter(None, [layout.staging]), *folders, f"{layout.owner}{prefix}-{uuid.uuid4().hex}.parquet"])


def _folders_of(layout: TableLayout, name: str) -> set[Path]:
    """Return the folders to sync so that a file's path survives a crash: its own and those above, up to the table's."""
    return {(Path(layout.path) / name).parents[i] for i in range(name.count("/") + 1)}


def _partitions(
    batch: pa.RecordBatch, partition_by: tuple[str, ...]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Yield each combination of partition values with its rows, without the partition columns."""
    if not partition_by:
        yield (), batch
        return
    rows = batch.drop_columns(list(partition_by))
    coded = [pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in partition_by]
    if all(len(column.dictionary) == 1 for column in coded):
        yield tuple(partition_text(batch.column(name)[0]) for name in partition_by), rows
        return
    number = np.zeros(batch.num_rows, np.int64)
    for column in coded:
        number = number * len(column.dictionary) + column.indices.to_numpy(zero_copy_only=False)
    for each in np.unique(number).tolist():
        at = np.flatnonzero(number == each)
        values = tuple(partition_text(batch.column(name)[int(at[0])]) for name in partition_by)
        yield values, rows.take(pa.array(at))


def partition_text(value: pa.Scalar) -> str | None:
    """Return a partition value as Delta writes it; an empty string counts as null."""
    if not value.is_valid:
        return None
    if pa.types.is_boolean(value.type):
        return "true" if value.as_py() else "false"
    if pa.types.is_temporal(value.type):
        return _time_text(value)
    if pa.types.is_decimal(value.type):
        return f"{value.as_py():f}"
    if pa.types.is_floating(value.type):
        return _JAVAS_NAMES.get(str(value.as_py()), str(value.as_py()))
    return str(value.as_py()) or None


def _time_text(value: pa.Scalar) -> str:
    """Return a date or time as text, timestamps in UTC; refuse years that other readers cannot parse."""
    try:
        found = value.as_py()
    except (OverflowError, ValueError):
        raise PipelineError(
            f"a value of a partition column lies outside of the years 1 to 9999 ({value.value} since 1970). Nothing of "
            "the batch was committed; partition by another column, or correct the row."
        ) from None
    if not pa.types.is_timestamp(value.type):
        return str(found)
    return str((found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found).isoformat(" ", "microseconds"))


def _folder(name: str, value: str | None, *, shortened: bool) -> str:
    """Return the folder name of a partition; ``shortened`` is for tables whose readers ignore folder names."""
    text = f"{name}={_NULL_PARTITION if value is None else quote(value, safe=' ')}"
    if not shortened or len(text) <= _NAME_BYTES:
        return text
    return f"{text[: _NAME_BYTES - 40]}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
