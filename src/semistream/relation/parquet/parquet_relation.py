"""ParquetRelation: R as plain Parquet, without a build or an index, for joins that scan R."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from semistream.budget import parse_bytes
from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.relation.format.page_layout import PageLayout
from semistream.relation.identified import Identified
from semistream.relation.named_columns import named_columns
from semistream.relation.parquet.data_files import DELTA_LOG, ParquetFiles
from semistream.relation.parquet.reader import ParquetReader
from semistream.relation.parquet.row_groups import RowGroups, decoder_bytes, read_footers
from semistream.relation.read.disk import BufferedDisk, Disk
from semistream.relation.write.page_writer import frame_bytes
from semistream.storage.local_paths import local_path

PAGE_BYTES = 256 << 10
_MOST_ROWS = 1 << 16  # per page
_CAREFUL_ROWS = 1 << 10  # decoded at a time if the footers do not tell the decoded size


@dataclass(frozen=True, eq=False)
class ParquetRelation(Identified):
    """A Parquet file, a folder of them, or a Delta table (needs the package deltalake), as of the time of opening.

    Create it with `open`, which reads the footers of the files. Rows are in no particular order, so keys cannot be
    looked up. `MeshJoin` and `AdaptiveMeshJoin` scan the rows, with or without a `FrontStage` before them; operators
    that find rows by key refuse this relation. Reads cover only the columns that a join needs. A folder has the columns
    of its first file in name order, and ``name=value`` parts of paths are columns too.

    A page is the unit of a scan: ``rows_per_page`` rows of a row group, or the rest of the group. It is decoded to at
    most ``page_bytes`` of memory, in several pieces if its rows need more. A larger single row is refused.

    Parameters
    ----------
    path : pathlib.Path
        The file, folder or Delta table.
    files : ParquetFiles
        Its data files, with their version.
    groups : RowGroups
        Row groups of all files, from their footers.
    schema : pyarrow.Schema
        All columns.
    page_bytes : int
        Most bytes of a decoded page, and thus of the widest row.
    columns : tuple of str
        Names of the columns to read; `reading` narrows them.

    Examples
    --------
    >>> import tempfile, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"id": [3, 1, 2], "name": ["cola", "tea", "water"]}), f"{folder}/r.parquet")
    ...     relation = ParquetRelation.open(f"{folder}/r.parquet")
    ...     relation.num_rows, relation.scan(["name"]).read_all().to_pydict()
    (3, {'name': ['cola', 'tea', 'water']})

    References
    ----------
    MESH 2 (R without an index); docs/architecture.md.
    """

    path: Path
    files: ParquetFiles
    groups: RowGroups
    schema: pa.Schema
    page_bytes: int
    columns: tuple[str, ...]

    clustered: ClassVar[bool] = False
    """False: the rows of a key may lie anywhere, so only a full scan is sure to find them all."""
    key: ClassVar[tuple[str, ...]] = ()
    null_key_rows: ClassVar[int] = 0
    segments: ClassVar[int] = 1
    """Number of segments per page: pages are decoded in one piece, whatever columns they have."""

    @classmethod
    def open(cls, path: str | Path, *, page_bytes: int | str = PAGE_BYTES) -> ParquetRelation:
        """Open the data set in its current state. ``page_bytes`` bounds a page in memory, and thus the widest row."""
        where = local_path(path)
        files = ParquetFiles.at(where)
        schema, groups = read_footers(files)
        relation = cls(where, files, groups, schema, parse_bytes(page_bytes), tuple(schema.names))
        least = 2 * frame_bytes(relation.layout)
        if relation.page_bytes < least:
            raise InvalidArgument(f"page_bytes is {page_bytes}; pages of these columns need at least {least}.")
        return relation

    def reading(self, columns: Sequence[str]) -> ParquetRelation:
        """Return the same data set, restricted to reading some columns; ``schema`` still has all."""
        return replace(self, columns=tuple(name for name in self.schema.names if name in columns))

    def refreshed(self) -> ParquetRelation:
        """Open the data set again with all columns; return this object if nothing has changed."""
        now = ParquetRelation.open(self.path, page_bytes=self.page_bytes)
        return self if now.version == self.version else now

    @property
    def identity(self) -> tuple[object, ...]:
        """The state of the data set and the columns to read, by which relations compare."""
        return self.path.absolute(), self.version, self.page_bytes, self.columns

    @property
    def version(self) -> int:
        """Version of a Delta table; otherwise a hash of the names, sizes and modification times of the files."""
        return self.files.version

    @cached_property
    def num_rows(self) -> int:
        """Number of rows in all files."""
        return int(self.groups.rows.sum())

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all columns, encoded but uncompressed: the base of a share such as "10%"."""
        return int(self.groups.uncompressed.sum())

    @cached_property
    def layout(self) -> PageLayout:
        """Layout of pages with the columns to read."""
        return PageLayout.with_codes(pa.schema([self.schema.field(name) for name in self.columns]))

    @property
    def whole_layout(self) -> PageLayout:
        """Layout of pages with all columns."""
        return PageLayout.with_codes(self.schema)

    @cached_property
    def rows_per_page(self) -> int:
        """Rows per page: the number that fits on average, estimated from the footers."""
        if self.num_rows == 0:
            return 1
        stored = self._chunks(self.groups.uncompressed).sum(axis=0) / self.num_rows
        least = [column.width + (0.25 if column.kind == "bits" else 0.125) for column in self.layout.columns[1:]]
        row = 8 + sum(max(width, average) for width, average in zip(least, stored.tolist(), strict=True))
        most = int((self.page_bytes - frame_bytes(self.layout)) / row)
        return max(1, min(most, _MOST_ROWS, int(self.groups.rows.max())))

    @property
    def rows_per_decode(self) -> int:
        """Rows decoded at a time: fewer if a file may store repeated values only once (dictionaries)."""
        careful = bool(self.groups.hidden[self._places].any())
        return min(self.rows_per_page, _CAREFUL_ROWS) if careful else self.rows_per_page

    @cached_property
    def first_pages(self) -> Int64s:
        """First page of each row group, followed by the number of pages."""
        pages = -(-self.groups.rows // self.rows_per_page)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(pages)])

    @property
    def num_pages(self) -> int:
        """Number of pages."""
        return int(self.first_pages[-1])

    @property
    def largest_page(self) -> int:
        """Maximum bytes of a page."""
        return self.page_bytes if self.num_pages else 0

    def most_rows(self, run_bytes: int) -> int:
        """Return the maximum rows of a run. A run is always one page, whatever ``run_bytes`` is."""
        del run_bytes
        return self.rows_per_page if self.num_pages else 0

    @property
    def index_bytes(self) -> int:
        """Bytes of footer data kept in memory."""
        return self.groups.memory_bytes + self.first_pages.nbytes

    @property
    def batch_bytes(self) -> int:
        """Maximum bytes of rows decoded together; larger batches are refused."""
        return 4 * self.page_bytes

    @cached_property
    def decoding_bytes(self) -> int:
        """Maximum bytes of memory for decoding, besides pages.

        Decoding proceeds row group by row group. In the worst case a column chunk is a single Parquet page, and memory
        holds the chunk compressed, decompressed and, if that page is its dictionary, decoded once more. Two batches of
        decoded rows exist at a time. Chunks of ordinary Parquet pages need far less, but footers do not tell.
        """
        if not self.num_pages:
            return 0
        chunks = self._chunks(self.groups.compressed) + 2 * self._chunks(self.groups.uncompressed)
        return int(chunks.sum(axis=1).max()) + decoder_bytes(len(self.columns)) + 2 * self.batch_bytes

    def group_bytes(self, group: int) -> int:
        """Return the bytes read from the file for a row group."""
        return int(self._chunks(self.groups.compressed)[group].sum())

    @cached_property
    def _places(self) -> list[int]:
        return [self.schema.get_field_index(name) for name in self.columns]

    def _chunks(self, sizes: Int64s) -> Int64s:
        """Return the sizes of the chunks to read, by row group and column."""
        return sizes[:, self._places]

    def disk(self, disk: str | Disk = "auto") -> Disk:
        """Return a disk to count reads with: each row group as a request with a seek, with its compressed bytes.

        Files are read through the operating system's page cache.
        """
        if isinstance(disk, Disk):
            return disk
        if disk in ("auto", "buffered"):
            return BufferedDisk()
        raise InvalidArgument(f"disk is {disk!r}; for Parquet, give 'auto', 'buffered' or a Disk that counts reads.")

    def reader(self, *, disk: str | Disk = "auto", buffers: int = 2) -> ParquetReader:
        """Create a reader that holds at most ``buffers`` pages, including those read ahead."""
        return ParquetReader(self, self.disk(disk), buffers=buffers)

    def scan(self, columns: str | Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Read all rows in the order of the files, for example as input of `Relation.build`."""
        read = self.reading(self.require_columns(columns))
        schema = pa.schema([self.schema.field(name) for name in self.require_columns(columns)])
        return pa.RecordBatchReader.from_batches(schema, read._batches(schema))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        reader = self.reader()
        try:
            for page in range(self.num_pages):
                reader.ask(page)
                ended = False
                while not ended:
                    run, ended = reader.take()
                    yield pa.RecordBatch.from_arrays(run.batch(0, schema.names).columns, schema=schema)
                    reader.give_back()
        finally:
            reader.close()

    def require_columns(self, columns: str | Sequence[str] | None) -> list[str]:
        """Return ``columns`` as a list, all columns for None; raise `ColumnNotFound` for an unknown name."""
        return named_columns(self.schema, columns, self.path)

    def refuse(self, operator: str, keys: Sequence[str]) -> InvalidArgument:
        """Return the error for an operator that needs a relation, with the command to build one."""
        target = self.path.with_name(self.path.stem + "-relation")
        names = list(keys) or ["KEY"]
        source = repr(str(self.path))
        shell = ""
        if (self.path / DELTA_LOG).is_dir():
            source = f"ParquetRelation.open({source}).scan()"
        else:
            command = ["semistream", "relation", "build", str(self.path), str(target)]
            shell = f"`{shlex.join(command + [word for name in names for word in ('--key', name)])}` or "
        return InvalidArgument(
            f"operator {operator!r} needs pages clustered by a key, but {self.path} is plain Parquet, "
            f"which has none. Build a relation: {shell}`Relation.build({source}, {str(target)!r}, "
            f"key={names})`; or use MeshJoin (operator='mesh'), which scans Parquet directly, or CachedMeshJoin "
            "(operator='cmesh'), which adds a cache to it."
        )
