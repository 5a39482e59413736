"""Write sorted rows as pages: one Arrow IPC file per column group, with one record batch per page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from semistream.kernels.array_types import Int64s
from semistream.kernels.page_cuts import cut_pages
from semistream.keys.plain_types import empty_batch
from semistream.relation.format.kernels import locate_blocks
from semistream.relation.format.manifest import DataFile
from semistream.relation.format.page_layout import PageLayout, SegmentLayout
from semistream.relation.format.page_table import PageTable, SegmentTable
from semistream.relation.format.row_sizes import count_offsets, row_ends
from semistream.storage.local_files import sync_file

_TRAILER = 10  # footer length (4 bytes) and the closing magic


class PageWriter:
    """Writer of pages to data files, one per column group. Rows must arrive in ascending order of their codes.

    ``page_bytes`` bounds a page, including Arrow's metadata and padding; a single larger row gets a page of its own.
    The files are valid only after `close`, which returns their manifest entries and the page table.
    """

    def __init__(self, paths: Sequence[Path], layout: PageLayout, code_column: str, *, page_bytes: int) -> None:
        self._layout = layout
        self._code_column = code_column
        self._frame = frame_bytes(layout)
        self._room = page_bytes - self._frame
        self._files = [_SegmentFile(path, segment) for path, segment in zip(paths, layout.segments, strict=True)]
        self._rest: pa.RecordBatch | None = None
        self._rows: list[Int64s] = []
        self._first: list[Int64s] = []
        self._last: list[Int64s] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. The last rows are held back, because they may share a page with the next ones."""
        if self._rest is not None:
            batch = pa.concat_batches([self._rest, batch])
        self._rest = None
        if batch.num_rows:
            cuts = cut_pages(row_ends(batch, self._layout), self._room)
            self._write_pages(batch, cuts)
            self._rest = batch.slice(int(cuts[-1]))

    def write_apart(self, batch: pa.RecordBatch, *, most_bytes: int) -> None:
        """Add rows that share no page with others: in one page if they fit in ``most_bytes``, otherwise in several."""
        self.end_page()
        if batch.num_rows and row_ends(batch, self._layout)[-1] <= most_bytes - self._frame:
            self._rest = batch
        else:
            self.write(batch)
        self.end_page()

    @property
    def pages(self) -> int:
        """Number of pages written so far."""
        return sum(part.size for part in self._rows)

    def end_page(self) -> None:
        """Write the rows held back as a page, so that the next rows start a new one."""
        if self._rest is not None:
            self._write_pages(self._rest, np.array([0, self._rest.num_rows]))
            self._rest = None

    def _write_pages(self, batch: pa.RecordBatch, cuts: Int64s) -> None:
        """Write the pages between consecutive cuts; rows after the last cut are not written."""
        if cuts.size < 2:
            return
        codes = batch.column(self._code_column).view(pa.int64()).to_numpy()
        for file in self._files:
            file.write_pages(batch, cuts)
        self._rows.append(np.diff(cuts))
        self._first.append(codes[cuts[:-1]])
        self._last.append(codes[cuts[1:] - 1])

    def close(self, names: Sequence[str], number: int) -> tuple[list[DataFile], PageTable]:
        """Finish the files and force them to disk; return their entries and the page table.

        The entries are called ``names``; the page table refers to the files by ``number``.
        """
        self.end_page()
        sealed = [file.seal(name) for file, name in zip(self._files, names, strict=True)]
        rows = _joined(self._rows).astype(np.int32)
        table = PageTable(
            np.full(rows.size, number, np.int32),
            rows,
            _joined(self._first),
            _joined(self._last),
            tuple(segments for _, segments in sealed),
        )
        return [entry for entry, _ in sealed], table

    def abandon(self) -> None:
        """Close and remove the files."""
        for file in self._files:
            file.abandon()


class _SegmentFile:
    """The Arrow IPC file with the pages' segments of one column group."""

    def __init__(self, path: Path, layout: SegmentLayout) -> None:
        self._path = path
        self._schema = layout.schema
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, layout.schema)
        self._no_rows = empty_batch(layout.schema)
        self._nested = any(pa.types.is_nested(type_) for type_ in layout.schema.types)

    def write_pages(self, batch: pa.RecordBatch, cuts: Int64s) -> None:
        """Write the group's columns of the pages between consecutive cuts."""
        if batch.num_columns > len(self._schema):
            columns = [batch.column(name) for name in self._schema.names]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        for start, length in zip(cuts[:-1].tolist(), np.diff(cuts).tolist(), strict=True):
            page = batch.slice(start, length)
            # Copy pages of which Arrow would write too much. Buffers sliced from row 0 are written with up to 64 bytes
            # beyond the page. Bitmaps of nested values that start at bit 0 are written to their end, far beyond it.
            copied = self._nested or start == 0
            self._writer.write_batch(pa.concat_batches([page, self._no_rows]) if copied else page)

    def seal(self, name: str) -> tuple[DataFile, SegmentTable]:
        """Finish the file, force it to disk, and return its entry and segment table."""
        self._writer.close()
        self._sink.close()
        sync_file(self._path)
        return _seal(self._path, name)

    def abandon(self) -> None:
        """Close and remove the file."""
        self._sink.close()
        self._path.unlink(missing_ok=True)


def frame_bytes(layout: PageLayout) -> int:
    """Return the bytes of a page besides its rows: metadata of the messages, padding, the last offset of strings."""
    metadata = sum(_metadata_bytes(segment.schema) for segment in layout.segments)
    last_offsets = 8 * sum(count_offsets(column.type) for column in layout.columns)
    further_bytes = 56 * sum(column.kind == "binary" for column in layout.columns)  # Arrow pads string data to 64
    return metadata + 8 * layout.num_buffers + last_offsets + further_bytes


def _metadata_bytes(schema: pa.Schema) -> int:
    columns = [pa.nulls(1, field.type) for field in schema]
    message = pa.RecordBatch.from_arrays(columns, names=schema.names).serialize()
    return 8 + int.from_bytes(message[4:8], "little")


def _joined(parts: list[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _seal(path: Path, name: str) -> tuple[DataFile, SegmentTable]:
    """Read the finished file back and compute the checksums of every segment and of the bytes around them."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(size - _TRAILER)
        footer_bytes = int.from_bytes(file.read(4), "little")
        file.seek(size - _TRAILER - footer_bytes)
        blocks = locate_blocks(np.frombuffer(file.read(footer_bytes), np.uint8))
        offsets, lengths = blocks[:, 0].copy(), blocks[:, 1].copy()
        checksums = np.empty(offsets.size, np.uint64)
        for page, (offset, length) in enumerate(zip(offsets.tolist(), lengths.tolist(), strict=True)):
            file.seek(offset)
            checksums[page] = xxhash.xxh64_intdigest(file.read(length))
    begin = int(offsets[0]) if offsets.size else 0
    end = int(offsets[-1] + lengths[-1]) if offsets.size else 0
    entry = DataFile(name, size, begin, end, edge_checksum(path, begin, end))
    return entry, SegmentTable.unverified(offsets, lengths, checksums)


def edge_checksum(path: Path, begin: int, end: int) -> int:
    """Compute the checksum of a data file's bytes outside ``begin`` to ``end``, the range of its pages."""
    with path.open("rb") as file:
        head = file.read(begin)
        file.seek(end)
        return int(xxhash.xxh64_intdigest(head + file.read()))
