"""Relation: R on disk, paged, clustered by key, versioned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidArgument
from semistream.kernels.array_types import Bytes, Int64s
from semistream.keys import KeyCodec
from semistream.relation.changes import changes_since, pages_kept_from
from semistream.relation.format.manifest import Manifest, get_current, list_versions, read_manifest, require_version
from semistream.relation.format.page_layout import PageLayout
from semistream.relation.format.page_table import PageTable
from semistream.relation.lookup import lookup_rows
from semistream.relation.read.disk import Disk, open_disk
from semistream.relation.read.page_run import PageRun
from semistream.relation.read.read_plan import Pages
from semistream.relation.read.run_reader import RunReader
from semistream.relation.update import Change, Transaction, update_relation
from semistream.relation.vacuum import vacuum_relation
from semistream.relation.verify import Verified, verify_relation
from semistream.relation.write.build import Progress, build_relation
from semistream.relation.write.version_draft import check_whole

SCAN_RUN_BYTES = 4 << 20


@dataclass(frozen=True)
class Relation:
    """One version of a relation on disk. Opening it reads the page table; rows are read when asked for.

    A page's checksum is compared when it is first read through this object; the table remembers which were.

    ``groups`` are the column groups that are read: all of them, unless the relation was narrowed by `reading`.
    ``first_page`` is the number of its first page in the whole version, if it is a `part`.

    >>> import tempfile
    >>> products = pa.table({"id": [3, 1, 2], "name": ["cola", "tea", "water"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     relation = Relation.build(products, f"{folder}/products", key="id")
    ...     relation.num_rows, relation.lookup([2]).to_pylist()
    (3, [{'id': 2, 'name': 'water'}])
    """

    path: Path
    manifest: Manifest
    table: PageTable
    groups: tuple[int, ...]
    first_page: int = 0
    _narrowed: dict[tuple[int, ...], Relation] = field(default_factory=dict, repr=False, compare=False)

    clustered: ClassVar[bool] = True
    """Rows of a key lie together: a join that has met the pages of its code has met them all."""

    @classmethod
    def build(
        cls,
        data: Any,
        path: str | Path,
        *,
        key: str | Sequence[str],
        page_bytes: int | None = None,
        memory: int | str = "512MB",
        fill_factor: float = 1.0,
        overwrite: bool = False,
        column_groups: Sequence[Sequence[str]] | None = None,
        progress: Progress | None = None,
    ) -> Relation:
        """Build a relation at ``path`` from ``data``, within ``memory``, however large the data is.

        ``data`` is anything with ``__arrow_c_stream__`` (pyarrow, polars, pandas, DuckDB), an iterable of record
        batches, or a path to Parquet, Arrow IPC or CSV. ``key`` names the join columns; keys may repeat, and rows with
        a null key are kept apart, as the key joins them with nothing. Pages hold at most ``page_bytes`` (64 KiB unless
        given, 40 KiB for each column group), filled to ``fill_factor`` to leave room for updates. ``progress(phase,
        rows)`` is called as rows are read and written. Either the whole relation is published or nothing of it is left.

        Wide rows lie in column groups, so that a join with ``columns`` reads only the groups that hold them and the
        key. ``column_groups`` says which columns are read together; one that names a column of the key is read with it,
        so all columns in one group are read as a whole. Those not named lie with the key if rows are narrow (up to 256
        bytes), else a few neighbours in each group.
        """
        build_relation(
            data,
            Path(path),
            key=key,
            page_bytes=page_bytes,
            memory=memory,
            fill_factor=fill_factor,
            overwrite=overwrite,
            column_groups=column_groups,
            progress=progress,
        )
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path, version: int | None = None) -> Relation:
        """Open the current version, or the one named."""
        folder = Path(path)
        number = get_current(folder) if version is None else require_version(folder, version)
        manifest = read_manifest(folder, number)
        groups = tuple(range(manifest.num_groups))
        return cls(folder, manifest, _read_table(folder, manifest, groups), groups)

    @property
    def version(self) -> int:
        """The version that is open; updates publish the next one."""
        return self.manifest.version

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that rows are joined by."""
        return self.manifest.key

    @cached_property
    def schema(self) -> pa.Schema:
        """R's columns."""
        return self.manifest.schema

    @cached_property
    def num_rows(self) -> int:
        """Rows, those with a null key included."""
        return int(self.table.rows.sum()) + self.null_key_rows

    @property
    def null_key_rows(self) -> int:
        """Rows with a null key: kept, but out of reach of every join by the key."""
        return self.manifest.null_key_rows

    @property
    def num_pages(self) -> int:
        """Pages that joins read."""
        return len(self.table)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the pages: what a full scan reads, and what a share like "10%" is a share of.

        Of a relation that was narrowed, those of the column groups that are read.
        """
        return int(self.table.nbytes.sum())

    @cached_property
    def largest_page(self) -> int:
        """Bytes of the largest page."""
        return int(self.table.nbytes.max(initial=0))

    def most_rows(self, run_bytes: int) -> int:
        """Rows that pages of ``run_bytes`` together can have."""
        rows, densest = self._density
        return min(math.ceil(run_bytes * densest), rows)

    @cached_property
    def _density(self) -> tuple[int, float]:
        """Rows of all pages, and rows by byte of the densest."""
        table = self.table
        return int(table.rows.sum()), float((table.rows / table.nbytes).max(initial=0.0))

    def reading(self, columns: Sequence[str]) -> Relation:
        """The relation for a join that needs only some columns: this one, if it reads no more groups than it must.

        Else the same version, of which pages have only the column groups with these columns and the key: so do
        `table`, `layout`, `nbytes` and all that is read. `schema` still has all columns. It works both ways: of a
        relation that was narrowed, columns in other groups can be read too.
        """
        holding = enumerate(self.manifest.column_groups)
        groups = tuple(i for i, group in holding if i == 0 or not set(columns).isdisjoint(group)) or (0,)
        if groups == self.groups:
            return self
        if groups not in self._narrowed:
            self._narrowed[groups] = replace(self, table=self._table_of(groups), groups=groups, _narrowed={})
        return self._narrowed[groups]

    def _table_of(self, groups: tuple[int, ...]) -> PageTable:
        if set(groups) <= set(self.groups):
            return self.table.with_segments([self.groups.index(group) for group in groups])
        whole = _read_table(self.path, self.manifest, groups)
        return whole.take(slice(self.first_page, self.first_page + len(self.table)))

    @cached_property
    def codec(self) -> KeyCodec:
        """How key columns become codes."""
        return KeyCodec.of(self.key, [self.schema.field(name).type for name in self.key])

    @cached_property
    def layout(self) -> PageLayout:
        """How pages are laid out, as far as they are read."""
        groups = self.manifest.column_groups
        return self._layout_of([groups[i] for i in self.groups] if groups else [])

    @cached_property
    def whole_layout(self) -> PageLayout:
        """How pages with all column groups are laid out."""
        return self._layout_of(self.manifest.column_groups)

    def _layout_of(self, groups: Sequence[Sequence[str]]) -> PageLayout:
        return PageLayout.of(self.schema, self.key, self.codec, groups)

    @property
    def segments(self) -> int:
        """In how many places a page lies: one for each column group that is read."""
        return len(self.groups)

    @property
    def data_files(self) -> list[Path]:
        """The files that are read: those of the first column group, by their numbers in the page table, then others."""
        return [file for files in self._segment_files for file in files]

    @property
    def _segment_files(self) -> list[list[Path]]:
        """The files of each column group that is read, by their numbers in the page table."""
        return [[self.path / file.name for file in self.manifest.files_of(group)] for group in self.groups]

    def disk(self, disk: str | Disk = "auto") -> Disk:
        """A disk to read this relation through."""
        return open_disk(disk, self.data_files[0])

    def reader(
        self,
        *,
        run_bytes: int,
        disk: str | Disk = "auto",
        buffers: int = 2,
        threads: int = 1,
        memory: Sequence[Bytes] | None = None,
    ) -> RunReader:
        """A reader of runs of pages of at most ``run_bytes``, in ``memory`` if that is given."""
        return RunReader(
            self.table,
            self.layout,
            self._segment_files,
            self.disk(disk),
            run_bytes=run_bytes,
            buffers=buffers,
            threads=threads,
            memory=memory,
        )

    def read_pages(
        self, pages: Pages, *, run_bytes: int = SCAN_RUN_BYTES, disk: str | Disk = "auto"
    ) -> Iterator[PageRun]:
        """Read pages, by number, in runs that are contiguous on disk; each run is valid until the next one."""
        run_bytes = max(run_bytes, int(self.table.nbytes[pages].max(initial=0)))
        reader = self.reader(run_bytes=run_bytes, disk=disk)
        try:
            yield from reader.read_all(pages[a:b] for a, b in pairwise(self.table.cut_runs(pages, run_bytes)))
        finally:
            reader.close()

    def scan(self, columns: Sequence[str] | None = None, *, disk: str | Disk = "auto") -> pa.RecordBatchReader:
        """All rows, page by page in the order of their codes, then those with a null key."""
        names = self.require_columns(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, self.reading(names)._scan(names, schema, disk))

    def _scan(self, names: list[str], schema: pa.Schema, disk: str | Disk) -> Iterator[pa.RecordBatch]:
        no_rows = pa.RecordBatch.from_pylist([], schema=schema)
        for run in self.read_pages(np.arange(len(self.table)), disk=disk):
            batches = [run.batch(i, names) for i in range(run.pages.size)]
            yield pa.concat_batches([*batches, no_rows])  # never one batch alone: a copy, as the buffer is used again
        for file in self.manifest.null_files:
            with pa.memory_map(str(check_whole(self.path, file))) as source:
                for batch in pa.ipc.open_file(source).read_all().select(names).to_batches():
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def lookup(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows whose key is among ``keys``, in the order of their codes: only their pages are read.

        ``keys`` is a list or Arrow array of values, or for several key columns a table (or anything that makes one)
        with columns called like the relation's.
        """
        names = self.require_columns(columns)
        return lookup_rows(self.reading(names), keys, names)

    def update(self, upserts: Any = None, deletes: Any = None) -> Relation:
        """Publish the next version: rows of ``upserts`` replace all rows of their key, ``deletes`` names keys to drop.

        Only pages that hold (or come to hold) a touched key are written again. A key in both is replaced. This version
        stays readable until it is vacuumed.
        """
        if upserts is None and deletes is None:
            raise InvalidArgument("update got neither upserts nor deletes; give at least one.")
        update_relation(self, lambda _: Change(upserts, deletes))
        return Relation.open(self.path)

    def change(self, change: Callable[[Relation], Change], transaction: Transaction) -> Relation:
        """Publish the next version with a change that is made of the current one, once for each transaction.

        No other writer comes in between. If the transaction, or one of the same writer with a greater number, was made
        already, nothing happens. Gives the current version; `made_by` says which one the transaction has made.
        """
        update_relation(self, change, transaction)
        return Relation.open(self.path)

    def made_by(self, transaction: Transaction) -> int | None:
        """The version that the last transaction of a writer has made, if its number is that or a greater one."""
        number, version = self.manifest.transactions.get(transaction.writer, (-1, 0))
        return version if number >= transaction.number else None

    def part(self, first_code: int | None = None, end_code: int | None = None) -> Relation:
        """This version narrowed to the pages that may hold codes from ``first_code`` to below ``end_code``.

        Joins and look-ups of such keys find all their rows in it. A page on the border is in the parts on both sides,
        and the rows with a null key are in all of them.
        """
        table = self.table
        begin = 0 if first_code is None else int(np.searchsorted(table.last_code, first_code, "left"))
        end = len(table) if end_code is None else int(np.searchsorted(table.first_code, end_code, "left"))
        pages = slice(begin, max(begin, end))
        return replace(self, table=table.take(pages), first_page=self.first_page + begin, _narrowed={})

    def refreshed(self) -> Relation:
        """The version published last: this object if that is still the one."""
        return self if get_current(self.path) == self.version else Relation.open(self.path)

    def changes_since(self, version: int, *, most_bytes: int | None = None) -> Int64s | None:
        """Codes of all keys that updates after ``version`` and up to this one touched: ascending, each once.

        A key that is not among them has the same rows in both versions. One that is among them may have too: every key
        of the upserts and the deletes is listed, also if it was not there to be deleted. None if it is not known, as
        when a version between was built anew or vacuumed, or when finding out takes more than ``most_bytes``. A part
        gives the codes of the whole relation. Rows with a null key have no code and match nothing.
        """
        return changes_since(self, version, most_bytes)

    def pages_kept_from(self, older: Relation) -> Int64s:
        """For each page of another version, or of a part of one, its number in this; -1 if it is not here any more.

        A page that is kept is the same bytes in the same place. One that is not was written again, has lost all its
        rows, or lies outside this part.
        """
        return pages_kept_from(self, older)

    def versions(self) -> list[int]:
        """Versions that can be opened, oldest first."""
        return list_versions(self.path)

    def vacuum(self, keep: int = 1) -> list[str]:
        """Remove all but the last ``keep`` versions, and files that none of them needs; gives their names."""
        return vacuum_relation(self.path, keep)

    def verify(self) -> Verified:
        """Read every byte of this version and check checksums, order and counts; raises `CorruptRelation`."""
        return verify_relation(self)

    def require_columns(self, columns: Sequence[str] | None) -> list[str]:
        """The names of existing columns, all of them for None."""
        names = list(self.schema.names if columns is None else columns)
        for name in names:
            if name not in self.schema.names:
                raise ColumnNotFound(name, self.schema.names, where=f"relation {self.path}")
        return names


def _read_table(folder: Path, manifest: Manifest, groups: Sequence[int]) -> PageTable:
    with pa.OSFile(str(check_whole(folder, manifest.page_table))) as source:
        return PageTable.from_arrow(pa.ipc.open_file(source).read_all(), groups)
