"""Archives of the tuples that left a window join, from which `repair` produces missing results later.

Semantic load smoothing (WINDOW 2.2): tuples that could not be joined for lack of memory or time are joined later. A
result is missing if one of its tuples had left, or never reached the join, when the other one arrived. Producing it
needs both tuples. Every tuple, expired ones included, is therefore archived when it leaves, with its arrival number
and that of the last tuple it met. `semistream.windows.repair` produces the missing results of an archive.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.keys.plain_types import batch_in, given_back_schema, plain_schema
from semistream.storage.local_files import make_folder
from semistream.storage.local_paths import local_path
from semistream.windows.streams.event_time import SIDES
from semistream.windows.streams.lengths import WindowLength

TIME_COLUMN, ARRIVAL_COLUMN, UNTIL_COLUMN = "semistream time", "semistream arrival", "semistream until"
_WINDOWS = "windows.json"
NEVER = -1
"""Arrival number of the last tuple met, for a tuple that never reached the join."""


@dataclass(frozen=True)
class WindowChange:
    """The windows valid from an instant on."""

    instant: int
    windows: tuple[WindowLength, WindowLength]


class Archive(ABC):
    """Store of departed tuples, each with its instant, its arrival number and that of the last tuple it met.

    A `WindowJoin` adds every tuple once, when the tuple leaves, and records each change of its windows. This is all
    that `repair` needs to produce the missing results. Arrival numbers order the tuples of both streams. A tuple that
    never reached the join has `NEVER` as the last one met.

    A subclass implements ``_write(side, batch)`` and ``read(side, schema)``. Sides are 0 (left) and 1 (right).

    Methods
    -------
    begin(windows)
        Record the initial windows of a join.
    change_windows(instant, windows)
        Record the windows valid from an instant on.
    add(side, batch, time, arrival, until)
        Add tuples of one stream that have left the join.
    read(side, schema)
        Return all archived tuples of one stream, with the columns ``semistream time``, ``semistream arrival`` and
        ``semistream until``.

    Examples
    --------
    >>> import numpy as np
    >>> class PrintedArchive(Archive):
    ...     def _write(self, side, batch):
    ...         print(("left", "right")[side], batch.to_pylist())
    ...     def read(self, side, schema):
    ...         raise NotImplementedError
    >>> PrintedArchive().add(0, pa.record_batch({"k": [7]}), np.array([5]), np.array([0]), np.array([3]))
    left [{'k': 7, 'semistream time': 5, 'semistream arrival': 0, 'semistream until': 3}]

    References
    ----------
    WINDOW 2.2, semantic load smoothing. docs/windows.md.
    """

    def __init__(self) -> None:
        self.changes: list[WindowChange] = []

    def begin(self, windows: tuple[WindowLength, WindowLength]) -> None:
        """Record the initial windows of a join; does nothing for an archive already in use."""
        if not self.changes:
            self.change_windows(-(2**63), windows)

    def change_windows(self, instant: int, windows: tuple[WindowLength, WindowLength]) -> None:
        """Record the windows valid from an instant on."""
        if not self.changes or self.changes[-1].windows != windows:
            self.changes.append(WindowChange(instant, windows))

    def add(self, side: int, batch: pa.RecordBatch, time: Int64s, arrival: Int64s, until: Int64s) -> None:
        """Add tuples of one stream that have left the join."""
        if not batch.num_rows:
            return
        own = [pa.array(time), pa.array(arrival), pa.array(until)]
        arrays = [*batch.columns, *own]
        self._write(side, pa.RecordBatch.from_arrays(arrays, schema=archived_schema(batch.schema)))

    @abstractmethod
    def _write(self, side: int, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    def read(self, side: int, schema: pa.Schema) -> pa.Table:
        """Return all archived tuples of one stream: the columns of ``schema``, and the three of the archive."""


class MemoryArchive(Archive):
    """Archive in memory.

    It grows with every tuple that leaves the join, and is not charged to the join's memory. Use it for short streams
    and tests, and `FileArchive` otherwise.

    Examples
    --------
    >>> from semistream.windows import WindowJoin
    >>> stream, archive = pa.schema([("k", pa.int64())]), MemoryArchive()
    >>> join = WindowJoin(stream, stream, on="k", window=3, archive=archive)
    >>> rows = pa.record_batch({"k": [1, 2, 3, 4]})
    >>> results = [*join.push_left(rows), *join.push_right(rows), *join.finish()]
    >>> archive.read(0, stream).column("k").to_pylist()
    [1, 2, 3, 4]

    References
    ----------
    WINDOW 2.2, semantic load smoothing. docs/windows.md.
    """

    def __init__(self) -> None:
        super().__init__()
        self._batches: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])

    def _write(self, side: int, batch: pa.RecordBatch) -> None:
        self._batches[side].append(batch)

    def read(self, side: int, schema: pa.Schema) -> pa.Table:
        """Return all archived tuples of one stream."""
        return _in_types(pa.Table.from_batches(self._batches[side], plain_schema(archived_schema(schema))), schema)


class FileArchive(Archive):
    """Archive in a folder, with one Arrow IPC stream file per side that any Arrow reader can open.

    Close it (or use ``with``) before another process reads it with `open`. A folder that already has an archive is
    refused. The files are neither synced to disk nor part of the join's state, so a crash may lose their end.

    Parameters
    ----------
    folder : str or Path
        Folder of the archive; created if it does not exist.

    Examples
    --------
    >>> import tempfile
    >>> from semistream.windows import WindowJoin
    >>> stream, rows = pa.schema([("k", pa.int64())]), pa.record_batch({"k": [1, 2, 3]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with FileArchive(folder) as archive:
    ...         join = WindowJoin(stream, stream, on="k", window=3, archive=archive)
    ...         results = [*join.push_left(rows), *join.push_right(rows), *join.finish()]
    ...     FileArchive.open(folder).read(0, stream).column("k").to_pylist()
    [1, 2, 3]

    References
    ----------
    WINDOW 2.2, semantic load smoothing. docs/windows.md.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = local_path(folder)
        make_folder(self.folder)
        if (self.folder / _WINDOWS).exists():
            raise InvalidArgument(f"{self.folder} has an archive already; give another folder, or remove it.")
        self._writers: list[pa.ipc.RecordBatchStreamWriter | None] = [None, None]

    @classmethod
    def open(cls, folder: str | Path) -> FileArchive:
        """Open an existing archive for reading."""
        archive = cls.__new__(cls)
        Archive.__init__(archive)
        archive.folder, archive._writers = local_path(folder), [None, None]
        try:
            changes = json.loads((archive.folder / _WINDOWS).read_text())
        except FileNotFoundError:
            raise InvalidArgument(f"{folder} has no archive: it contains no {_WINDOWS}.") from None
        for instant, left, right in changes:
            archive.changes.append(WindowChange(instant, (WindowLength(*left), WindowLength(*right))))
        return archive

    def change_windows(self, instant: int, windows: tuple[WindowLength, WindowLength]) -> None:
        """Record the windows valid from an instant on."""
        super().change_windows(instant, windows)
        changes = [[c.instant, *(astuple(window) for window in c.windows)] for c in self.changes]
        (self.folder / _WINDOWS).write_text(json.dumps(changes))

    def _path(self, side: int) -> Path:
        return self.folder / f"{SIDES[side]}.arrows"

    def _write(self, side: int, batch: pa.RecordBatch) -> None:
        writer = self._writers[side]
        if writer is None:
            writer = self._writers[side] = pa.ipc.new_stream(str(self._path(side)), batch.schema)
        writer.write_batch(batch)

    def read(self, side: int, schema: pa.Schema) -> pa.Table:
        """Return all archived tuples of one stream."""
        self.close()
        if not self._path(side).exists():
            return pa.Table.from_batches([], given_back_schema(archived_schema(schema)))
        with pa.OSFile(str(self._path(side))) as source:
            return _in_types(pa.ipc.open_stream(source).read_all(), schema)

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers:
            if writer is not None:
                writer.close()
        self._writers = [None, None]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _in_types(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return archived rows, which are kept in plain types, in the types of their stream."""
    wanted = given_back_schema(archived_schema(schema))
    if wanted.types == rows.schema.types:
        return rows
    return pa.Table.from_batches([batch_in(batch, wanted) for batch in rows.to_batches()], wanted)


def archived_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a stream with the columns that the archive adds."""
    taken = {TIME_COLUMN, ARRIVAL_COLUMN, UNTIL_COLUMN} & set(schema.names)
    if taken:
        raise InvalidArgument(f"the stream has columns reserved for the archive: {sorted(taken)}; rename them.")
    return pa.schema([*schema, *(pa.field(name, pa.int64()) for name in (TIME_COLUMN, ARRIVAL_COLUMN, UNTIL_COLUMN))])
