"""ParquetReader: decodes Parquet row groups into pages in memory, ahead of the join, in one thread."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.errors import BudgetError, RelationError
from semistream.kernels.array_types import Int64s
from semistream.keys.plain_types import converted
from semistream.relation.format.row_sizes import row_ends
from semistream.relation.null_keys import page_of, with_code_column
from semistream.relation.parquet.data_files import file_stamp
from semistream.relation.parquet.row_groups import open_file
from semistream.relation.read.disk import Disk
from semistream.relation.read.page_run import PageRun
from semistream.relation.write.page_writer import frame_bytes
from semistream.storage.locks import OwnProcess

if TYPE_CHECKING:
    from semistream.relation.parquet.parquet_relation import ParquetRelation

COPIES = 3
"""Extra memory needed while a page is made, in pages."""


class ParquetReader:
    """Reader of pages in the order requested, which must be the order of the files, over and over.

    The interface is that of `RunReader`: `ask`, `take`, `give_back`. A page arrives in one or more pieces, each a run
    of one page in separate memory. At most ``buffers`` pieces exist at a time, including the one taken. Only requested
    pages are read. `take` raises any error of the thread in place of the piece.
    """

    def __init__(self, relation: ParquetRelation, disk: Disk, *, buffers: int) -> None:
        self._relation = relation
        self._disk = disk
        self._buffers = buffers
        self._pages = _Pages(relation)
        self._waiting = 0
        self._asked: SimpleQueue[int | None] = SimpleQueue()
        self._made: SimpleQueue[tuple[PageRun, bool] | Exception] = SimpleQueue()
        self._slots = threading.Semaphore(buffers)
        self._thread: threading.Thread | None = None
        self._process = OwnProcess()
        self._closed = False
        self._error: Exception | None = None

    @property
    def room(self) -> int:
        """Number of pages that can be requested before one must be taken."""
        return self._buffers - self._waiting

    def ask(self, page: int) -> None:
        """Request a page: the one after the last request, or the first."""
        group = int(np.searchsorted(self._relation.first_pages, page, "right")) - 1
        counts = self._disk.counts
        if page == self._relation.first_pages[group]:
            counts.requests += 1
            counts.seeks += 1
            counts.bytes += self._relation.group_bytes(group)
        counts.pages += 1
        self._waiting += 1
        self._asked.put(group)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="semistream-reader", daemon=True)
            self._thread.start()

    def take(self) -> tuple[PageRun, bool]:
        """Wait for the next piece of the oldest requested page; return it, and True if it is the page's last.

        The piece belongs to the caller until `give_back`.
        """
        made = self._error or self._made.get()
        if isinstance(made, Exception):
            self._error = made
            raise made
        self._waiting -= made[1]
        return made

    def give_back(self) -> None:
        """Release the piece taken last."""
        self._slots.release()

    def _work(self) -> None:
        try:
            while (group := self._asked.get()) is not None:
                for piece, ends in self._pages.read(group):
                    self._slots.acquire()
                    if self._closed:
                        return
                    self._made.put((page_of(piece, self._relation.layout), ends))
        except Exception as error:  # any error: `take` raises it in the caller's thread
            self._made.put(error)
        finally:
            self._pages.close()

    def close(self) -> None:
        """End the thread and close files. In a fork there is no thread."""
        self._closed = True
        if self._thread is not None and not self._process.forked:
            self._asked.put(None)
            self._slots.release()
            self._thread.join()
        self._thread = None
        self._made = SimpleQueue()


class _Pages:
    """Decoder of consecutive pages, in pieces that fit a page in memory."""

    def __init__(self, relation: ParquetRelation) -> None:
        self._relation = relation
        self._room = relation.page_bytes - frame_bytes(relation.layout)
        self._group = -1
        self._left = 0  # rows of the group not yet assigned to a page
        self._decoded = self._decode(-1)
        self._batch: pa.RecordBatch | None = None  # last decoded batch; its first ``_at`` rows are used up
        self._at = 0
        self._ends: Int64s = np.zeros(0, np.int64)

    def read(self, group: int) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield the pieces of the next page, which lies in row group ``group``, each with True if it is the last."""
        if group != self._group or self._left == 0:
            self.close()
            self._group, self._left = group, int(self._relation.groups.rows[group])
            self._decoded = self._decode(group)
        wanted = min(self._left, self._relation.rows_per_page)
        self._left -= wanted
        parts: list[pa.RecordBatch] = []
        room = self._room
        while wanted:
            rows, nbytes = self._some(wanted, room)
            if rows is not None:
                parts.append(rows)
                room -= nbytes
                wanted -= rows.num_rows
            elif parts:
                yield pa.concat_batches(parts), False
                parts, room = [], self._room
            else:
                raise self._too_large("a row", nbytes, self._room)
        yield pa.concat_batches(parts), True

    def _some(self, most: int, room: int) -> tuple[pa.RecordBatch | None, int]:
        """Return the next rows that fit in ``room``, and their bytes; None and the next row's bytes if none fits."""
        if self._batch is None or self._at == self._batch.num_rows:
            self._batch = None  # freed before the next one is decoded
            self._batch, self._at = next(self._decoded), 0
            # Add validity bits for every buffer: a column with any null in the page stores one for each row.
            bits = np.arange(1, self._batch.num_rows + 1) * self._relation.layout.num_buffers
            self._ends = row_ends(self._batch, self._relation.layout) + (bits + 7) // 8
        before = int(self._ends[self._at - 1]) if self._at else 0
        fits = min(int(np.searchsorted(self._ends, before + room, "right")) - self._at, most)
        if fits <= 0:
            return None, int(self._ends[self._at]) - before
        rows = self._batch.slice(self._at, fits)
        self._at += fits
        return rows, int(self._ends[self._at - 1]) - before

    def _decode(self, group: int) -> Generator[pa.RecordBatch]:
        """Decode the rows of a row group in the columns of pages."""
        relation, groups = self._relation, self._relation.groups
        if group < 0:
            return
        number = int(groups.file[group])
        path, values = relation.files.paths[number], relation.files.values[number]
        with open_file(path) as file:
            if file_stamp(path) != groups.stamps[number]:
                raise RelationError(f"{path} was rewritten after the data set was opened. Open the data set again.")
            stored = [name for name in relation.columns if name in file.schema_arrow.names and name not in values]
            batches = file.iter_batches(
                relation.rows_per_decode, row_groups=[int(groups.number[group])], columns=stored, use_threads=False
            )
            for batch in batches:
                nbytes = batch.get_total_buffer_size()
                if nbytes > relation.batch_bytes:
                    raise self._too_large(f"{batch.num_rows} rows", nbytes, relation.batch_bytes)
                yield with_code_column(self._completed(batch, stored, values), relation.layout)

    def _completed(self, batch: pa.RecordBatch, stored: list[str], values: Mapping[str, object]) -> pa.RecordBatch:
        """Add the partition columns of the file, and nulls for the columns it lacks."""
        fields = [self._relation.schema.field(name) for name in self._relation.columns]
        columns = [
            converted(batch.column(field.name), field.type)
            if field.name in stored
            else pa.repeat(pa.scalar(values.get(field.name), field.type), batch.num_rows)
            for field in fields
        ]
        if not columns:
            return batch
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _too_large(self, what: str, nbytes: int, most: int) -> BudgetError:
        groups, group = self._relation.groups, self._group
        path = self._relation.files.paths[int(groups.file[group])]
        page_bytes = -(-nbytes * self._relation.page_bytes // most)
        return BudgetError(
            f"{what} of {path} (row group {groups.number[group]}) needs {nbytes} bytes of memory, but pages of "
            f"{self._relation.page_bytes} leave room for {most}. Open it with page_bytes={page_bytes} or more."
        )

    def close(self) -> None:
        """Close the open file."""
        self._decoded.close()
        self._batch = None
