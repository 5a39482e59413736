"""ParquetRelation: R as plain Parquet, with no build and no index, for joins that scan it."""

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
from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.relation.format.page_layout import CODE_COLUMN, PageLayout
from semistream.relation.parquet.data_files import DELTA_LOG, ParquetFiles
from semistream.relation.parquet.reader import ParquetReader
from semistream.relation.parquet.row_groups import RowGroups, decoder_bytes, read_footers
from semistream.relation.read.disk import BufferedDisk, Disk
from semistream.relation.write.page_writer import frame_bytes

PAGE_BYTES = 256 << 10
_MOST_ROWS = 1 << 16  # of a page
_CAREFUL_ROWS = 1 << 10  # decoded at a time where the file does not tell how large they will be


@dataclass(frozen=True)
class ParquetRelation:
    """A Parquet file, a folder of them, or a Delta table (by the package deltalake) as it was when it was opened.

    Opening reads the footers of the files. Rows come in any order, so nothing can be looked up: `MeshJoin` and
    `AdaptiveMeshJoin` scan them (MESH's own setting, section 2), with or without a `FrontStage` before them, and
    operators that find rows by a key refuse it. Only the columns that a join needs are read. In a folder, columns are
    those of its first file by name; ``name=value`` in paths are columns too.

    A page is what a join meets at a time: ``rows_per_page`` rows of a row group, or what is left of it. It is decoded
    to at most ``page_bytes`` of memory, in several pieces if these rows take more; a single row that does is refused.

    >>> import tempfile, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"id": [3, 1, 2], "name": ["cola", "tea", "water"]}), f"{folder}/r.parquet")
    ...     relation = ParquetRelation.open(f"{folder}/r.parquet")
    ...     relation.num_rows, relation.scan(["name"]).read_all().to_pydict()
    (3, {'name': ['cola', 'tea', 'water']})
    """

    path: Path
    files: ParquetFiles
    groups: RowGroups
    schema: pa.Schema
    page_bytes: int
    columns: tuple[str, ...]

    clustered: ClassVar[bool] = False
    """The rows of a key may lie anywhere: only a whole scan has met them all."""
    key: ClassVar[tuple[str, ...]] = ()
    null_key_rows: ClassVar[int] = 0
    segments: ClassVar[int] = 1
    """A page is made in one place, whatever columns it has."""

    @classmethod
    def open(cls, path: str | Path, *, page_bytes: int | str = PAGE_BYTES) -> ParquetRelation:
        """Open the data set as it is now. ``page_bytes`` bounds a page in memory, and so the widest row."""
        where = Path(path)
        files = ParquetFiles.at(where)
        schema, groups = read_footers(files)
        if CODE_COLUMN in schema.names:
            raise InvalidArgument(f"column {CODE_COLUMN!r} has a name that semistream keeps for itself; rename it.")
        relation = cls(where, files, groups, schema, parse_bytes(page_bytes), tuple(schema.names))
        least = 2 * frame_bytes(relation.layout)
        if relation.page_bytes < least:
            raise InvalidArgument(f"page_bytes is {page_bytes}; pages of these columns need at least {least}.")
        return relation

    def reading(self, columns: Sequence[str]) -> ParquetRelation:
        """The same data set, of which only some columns are read; ``schema`` still has all."""
        return replace(self, columns=tuple(name for name in self.schema.names if name in columns))

    def refreshed(self) -> ParquetRelation:
        """The data set as it is now, with all columns: this object if nothing has changed."""
        now = ParquetRelation.open(self.path, page_bytes=self.page_bytes)
        return self if now.version == self.version else now

    @property
    def version(self) -> int:
        """The version of a Delta table; else a number made of the names, sizes and times of the files."""
        return self.files.version

    @cached_property
    def num_rows(self) -> int:
        """Rows of all files."""
        return int(self.groups.rows.sum())

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all columns without compression, as encoded: what a share like "10%" is a share of."""
        return int(self.groups.uncompressed.sum())

    @cached_property
    def layout(self) -> PageLayout:
        """The columns that are read, as pages hold them."""
        return PageLayout.with_codes(pa.schema([self.schema.field(name) for name in self.columns]))

    @property
    def whole_layout(self) -> PageLayout:
        """All columns, as pages would hold them."""
        return PageLayout.with_codes(self.schema)

    @cached_property
    def rows_per_page(self) -> int:
        """Rows of a page: as many as its bytes take on average, as far as the footers tell."""
        if self.num_rows == 0:
            return 1
        stored = self._chunks(self.groups.uncompressed).sum(axis=0) / self.num_rows
        least = [column.width + (0.25 if column.kind == "bits" else 0.125) for column in self.layout.columns[1:]]
        row = 8 + sum(max(width, average) for width, average in zip(least, stored.tolist(), strict=True))
        most = int((self.page_bytes - frame_bytes(self.layout)) / row)
        return max(1, min(most, _MOST_ROWS, int(self.groups.rows.max())))

    @property
    def rows_per_decode(self) -> int:
        """Rows decoded at a time: fewer where a file may hold values once that come often."""
        careful = bool(self.groups.hidden[self._places].any())
        return min(self.rows_per_page, _CAREFUL_ROWS) if careful else self.rows_per_page

    @cached_property
    def first_pages(self) -> Int64s:
        """The first page of each row group, and the number of all pages."""
        pages = -(-self.groups.rows // self.rows_per_page)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(pages)])

    @property
    def num_pages(self) -> int:
        """Pages that make a scan."""
        return int(self.first_pages[-1])

    @property
    def largest_page(self) -> int:
        """Bytes that a page takes at most."""
        return self.page_bytes if self.num_pages else 0

    def most_rows(self, run_bytes: int) -> int:
        """Rows that a run of ``run_bytes`` can have: it is one page."""
        del run_bytes
        return self.rows_per_page if self.num_pages else 0

    @property
    def index_bytes(self) -> int:
        """What is kept in memory of the footers."""
        return self.groups.memory_bytes + self.first_pages.nbytes

    @property
    def batch_bytes(self) -> int:
        """What rows that are decoded together may take: those that do are refused."""
        return 4 * self.page_bytes

    @cached_property
    def decoding_bytes(self) -> int:
        """What decoding takes at most, besides pages.

        It is done row group by row group. In the worst case, a column chunk that is a single Parquet page, the chunk is
        in memory compressed, decompressed and, if that page is its dictionary, decoded once more. Of the rows decoded,
        two batches are there at a time. Chunks of ordinary Parquet pages take far less, but no footer tells.
        """
        if not self.num_pages:
            return 0
        chunks = self._chunks(self.groups.compressed) + 2 * self._chunks(self.groups.uncompressed)
        return int(chunks.sum(axis=1).max()) + decoder_bytes(len(self.columns)) + 2 * self.batch_bytes

    def group_bytes(self, group: int) -> int:
        """Bytes that reading a row group takes from its file."""
        return int(self._chunks(self.groups.compressed)[group].sum())

    @cached_property
    def _places(self) -> list[int]:
        return [self.schema.get_field_index(name) for name in self.columns]

    def _chunks(self, sizes: Int64s) -> Int64s:
        """Sizes of the chunks that are read, by row group and column."""
        return sizes[:, self._places]

    def disk(self, disk: str | Disk = "auto") -> Disk:
        """A disk that counts what is read: row groups as requests with a seek, and their bytes as they are stored.

        Files are read through the operating system's page cache.
        """
        if isinstance(disk, Disk):
            return disk
        if disk in ("auto", "buffered"):
            return BufferedDisk()
        raise InvalidArgument(f"disk is {disk!r}; Parquet is read with 'auto' or 'buffered', or counted by a Disk.")

    def reader(self, *, disk: str | Disk = "auto", buffers: int = 2) -> ParquetReader:
        """A reader of pages that holds at most so many, those that are read ahead included."""
        return ParquetReader(self, self.disk(disk), buffers=buffers)

    def scan(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """All rows in the order of the files: what `Relation.build` can be made from."""
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

    def require_columns(self, columns: Sequence[str] | None) -> list[str]:
        """The names of existing columns, all of them for None."""
        names = list(self.schema.names if columns is None else columns)
        for name in names:
            if name not in self.schema.names:
                raise ColumnNotFound(name, self.schema.names, where=f"relation {self.path}")
        return names

    def refuse(self, operator: str, keys: Sequence[str]) -> InvalidArgument:
        """Why an operator cannot take this, and how to make a relation that it can take."""
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
            f"operator {operator!r} works on pages that are clustered by a key, and {self.path} is plain Parquet, "
            f"which has none. Build a relation: {shell}`Relation.build({source}, {str(target)!r}, "
            f"key={names})`; or use MeshJoin (operator='mesh'), which scans Parquet as it is, or CachedMeshJoin "
            "(operator='cmesh'), which has a cache before it."
        )
