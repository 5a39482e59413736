"""Relation: R on disk in versioned pages, clustered by key."""

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

from semistream.errors import InvalidArgument
from semistream.kernels.array_types import Bytes, Int64s
from semistream.keys import KeyCodec
from semistream.relation.changes import changes_since, pages_kept_from
from semistream.relation.describe import describe_relation, tabulate_relation
from semistream.relation.format.manifest import Manifest, get_current, list_versions, read_manifest, require_version
from semistream.relation.format.page_layout import PageLayout
from semistream.relation.format.page_table import PageTable
from semistream.relation.identified import Identified
from semistream.relation.lookup import lookup_rows
from semistream.relation.named_columns import named_columns
from semistream.relation.read.disk import Disk, open_disk
from semistream.relation.read.page_run import PageRun
from semistream.relation.read.read_plan import Pages
from semistream.relation.read.run_reader import RunReader
from semistream.relation.scan_rows import scan_rows
from semistream.relation.update import Change, Transaction, update_relation
from semistream.relation.vacuum import vacuum_relation
from semistream.relation.verify import Verified, verify_relation
from semistream.relation.write.build import Progress, build_relation
from semistream.relation.write.version_draft import check_whole
from semistream.storage.local_paths import local_path

SCAN_RUN_BYTES = 4 << 20


@dataclass(frozen=True, repr=False, eq=False)
class Relation(Identified):
    """One version of the relation R on disk, in pages clustered by key. Create it with `build` or `open`.

    Opening reads the page table, rows are read on demand; the first read of a page verifies its checksum. A version
    never changes: `update` publishes a new one.

    Parameters
    ----------
    path : pathlib.Path
        Folder of the relation.
    manifest : Manifest
        Columns, key, files and checksums of the version.
    table : PageTable
        Position, size and code range of each page.
    groups : tuple of int
        Column groups to read: all of them, unless `reading` narrowed the relation.
    first_page : int
        Number of the first page in the version; above 0 for a `part`.

    Examples
    --------
    >>> import tempfile; products = pa.table({"id": [3, 1, 2], "name": ["cola", "tea", "water"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     relation = Relation.build(products, f"{folder}/products", key="id")
    ...     relation.num_rows, relation.lookup([2]).to_pylist()
    (3, [{'id': 2, 'name': 'water'}])

    References
    ----------
    SSIJ III (pages of R as leaves of the index) and IV-E (updates); docs/architecture.md.
    """

    path: Path
    manifest: Manifest
    table: PageTable
    groups: tuple[int, ...]
    first_page: int = 0
    _narrowed: dict[tuple[int, ...], Relation] = field(default_factory=dict, repr=False, compare=False)

    __repr__ = describe_relation
    _repr_html_ = tabulate_relation

    clustered: ClassVar[bool] = True
    """True: rows with the same key lie together, so the pages that cover a key's code hold all its rows."""

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
        """Build a relation at ``path`` from ``data`` of any size, within ``memory``.

        The build is atomic: it publishes the whole relation or leaves nothing behind. Rows with a null key are stored
        apart, because no equality join on the key matches them. Wide rows are stored in column groups, so that a join
        with ``columns`` reads only the groups that hold them and the key.

        Parameters
        ----------
        data : object with ``__arrow_c_stream__``, iterable of pyarrow.RecordBatch, str or Path
            The rows: pyarrow, polars, pandas, DuckDB, or a path to Parquet, Arrow IPC or CSV.
        path : str or Path
            Folder to create.
        key : str or sequence of str
            The join columns. Keys may repeat.
        page_bytes : int, optional
            Most bytes of a page. Default: 64 KiB, or 40 KiB per column group if that is more.
        memory : int or str
            Memory of the build: bytes, or text such as "512MB" (default).
        fill_factor : float
            Share of a page to fill, from 0.1 to 1; below 1 leaves room for updates. Default: 1.
        overwrite : bool
            True to replace an existing relation.
        column_groups : sequence of sequences of str, optional
            Columns to store together. A group with a key column is stored with the key, so every join reads it. One
            group of all columns keeps rows whole. Columns in no list are stored with the key if rows are narrow (up to
            256 bytes), and otherwise in groups of a few neighbours.
        progress : callable, optional
            Called as ``progress(phase, rows)`` while rows are read and written.
        """
        build_relation(
            data,
            local_path(path),
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
        """Open the current version, or the given one."""
        folder = local_path(path)
        number = get_current(folder) if version is None else require_version(folder, version)
        manifest = read_manifest(folder, number)
        groups = tuple(range(manifest.num_groups))
        return cls(folder, manifest, _read_table(folder, manifest, groups), groups)

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """Version, pages and column groups: relations compare by these."""
        return self.path.absolute(), self.manifest.page_table.name, self.groups, self.first_page, len(self.table)

    @property
    def version(self) -> int:
        """Number of the open version."""
        return self.manifest.version

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return self.manifest.key

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of R."""
        return self.manifest.schema

    @cached_property
    def num_rows(self) -> int:
        """Number of rows, including those with a null key."""
        return int(self.table.rows.sum()) + self.null_key_rows

    @property
    def null_key_rows(self) -> int:
        """Number of rows with a null key, which no equality join on the key matches."""
        return self.manifest.null_key_rows

    @property
    def num_pages(self) -> int:
        """Number of pages."""
        return len(self.table)

    @cached_property
    def nbytes(self) -> int:
        """Total bytes of the pages: the cost of a full scan, and the base of a share such as "10%".

        A narrowed relation counts only the column groups it reads.
        """
        return int(self.table.nbytes.sum())

    @cached_property
    def largest_page(self) -> int:
        """Bytes of the largest page."""
        return int(self.table.nbytes.max(initial=0))

    def most_rows(self, run_bytes: int) -> int:
        """Return the maximum number of rows in pages of ``run_bytes`` in total."""
        rows, densest = self._density
        return min(math.ceil(run_bytes * densest), rows)

    @cached_property
    def _density(self) -> tuple[int, float]:
        """Rows of all pages, and rows per byte of the densest page."""
        table = self.table
        return int(table.rows.sum()), float((table.rows / table.nbytes).max(initial=0.0))

    def reading(self, columns: Sequence[str]) -> Relation:
        """Return this version restricted to the column groups that hold ``columns`` and the key, or this object.

        Its `table`, `layout`, `nbytes` and reads cover only these groups, which may be more than this object's;
        `schema` still has all columns.
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
        """Encoder of the key columns."""
        return KeyCodec.of(self.key, [self.schema.field(name).type for name in self.key])

    @cached_property
    def layout(self) -> PageLayout:
        """Layout of the pages, restricted to the column groups this object reads."""
        groups = self.manifest.column_groups
        return self._layout_of([groups[i] for i in self.groups] if groups else [])

    @cached_property
    def whole_layout(self) -> PageLayout:
        """Layout of the pages with all column groups."""
        return self._layout_of(self.manifest.column_groups)

    def _layout_of(self, groups: Sequence[Sequence[str]]) -> PageLayout:
        return PageLayout.of(self.schema, self.key, self.codec, groups)

    @property
    def segments(self) -> int:
        """Number of segments per page: one for each column group this object reads."""
        return len(self.groups)

    @property
    def data_files(self) -> list[Path]:
        """Data files of the column groups this object reads, the first group's first, in page-table order."""
        return [file for files in self._segment_files for file in files]

    @property
    def _segment_files(self) -> list[list[Path]]:
        """Data files of each column group this object reads, indexed as in the page table."""
        return [[self.path / file.name for file in self.manifest.files_of(group)] for group in self.groups]

    def disk(self, disk: str | Disk = "auto") -> Disk:
        """Return a disk to read this relation through."""
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
        """Create a reader of page runs of at most ``run_bytes``, using the buffers in ``memory`` if given."""
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
        """Read pages by number, in runs contiguous on disk. Each run is valid until the next one."""
        run_bytes = max(run_bytes, int(self.table.nbytes[pages].max(initial=0)))
        reader = self.reader(run_bytes=run_bytes, disk=disk)
        try:
            yield from reader.read_all(pages[a:b] for a, b in pairwise(self.table.cut_runs(pages, run_bytes)))
        finally:
            reader.close()

    def scan(self, columns: str | Sequence[str] | None = None, *, disk: str | Disk = "auto") -> pa.RecordBatchReader:
        """Read all rows page by page in the order of their codes, then the rows with a null key."""
        names = self.require_columns(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, scan_rows(self.reading(names), names, schema, disk))

    def lookup(self, keys: Any, columns: str | Sequence[str] | None = None) -> pa.Table:
        """Return the rows whose key is among ``keys``, in the order of their codes, reading only the pages they need.

        ``keys`` is a list or Arrow array of values. For several key columns it is a table (or anything pyarrow converts
        to one) with the names of the relation's key columns.
        """
        names = self.require_columns(columns)
        return lookup_rows(self.reading(names), keys, names)

    def update(self, upserts: Any = None, deletes: Any = None, *, wait_s: float | None = None) -> Relation:
        """Publish the next version: rows of ``upserts`` replace all rows of their key, keys in ``deletes`` are dropped.

        A key in both is replaced. The update rewrites only the pages that hold, or will hold, a touched key. This
        version stays readable until it is vacuumed. Another writer is waited for, at most ``wait_s`` seconds (default:
        60); then `RelationLocked` is raised.
        """
        if upserts is None and deletes is None:
            raise InvalidArgument("update got neither upserts nor deletes; give at least one.")
        update_relation(self, lambda _: Change(upserts, deletes), wait_s=wait_s)
        return Relation.open(self.path)

    def change(self, change: Callable[[Relation], Change], transaction: Transaction) -> Relation:
        """Apply ``change`` to the current version and publish the next one, at most once per transaction.

        ``change`` is called under the writer lock, so no other writer intervenes. If this transaction, or one of the
        same writer with a greater number, is already applied, nothing happens. Returns the current version; `made_by`
        tells the version that the transaction published.
        """
        update_relation(self, change, transaction)
        return Relation.open(self.path)

    def made_by(self, transaction: Transaction) -> int | None:
        """Return the version published by the writer's last transaction, or None if it precedes ``transaction``."""
        number, version = self.manifest.transactions.get(transaction.writer, (-1, 0))
        return version if number >= transaction.number else None

    def part(self, first_code: int | None = None, end_code: int | None = None) -> Relation:
        """Return this version restricted to the pages that may hold codes in [``first_code``, ``end_code``).

        Joins and look-ups of such keys find all their rows in the part. A page on a border belongs to the parts on both
        sides, and every part has all rows with a null key.
        """
        table = self.table
        begin = 0 if first_code is None else int(np.searchsorted(table.last_code, first_code, "left"))
        end = len(table) if end_code is None else int(np.searchsorted(table.first_code, end_code, "left"))
        pages = slice(begin, max(begin, end))
        return replace(self, table=table.take(pages), first_page=self.first_page + begin, _narrowed={})

    def refreshed(self) -> Relation:
        """Open the current version; return this object if it is still current."""
        return self if get_current(self.path) == self.version else Relation.open(self.path)

    def changes_since(self, version: int, *, most_bytes: int | None = None) -> Int64s | None:
        """Return the distinct codes, ascending, of all keys touched by updates after ``version`` up to this one.

        A key not listed has the same rows in both versions. A listed key may be unchanged too: the list has every key
        of the upserts and the deletes, even a deleted key that did not exist. Returns None if the codes are unknown
        because a version in between was built anew or vacuumed, or if computing them needs more than ``most_bytes``. A
        part returns the codes of the whole relation. Rows with a null key have no code.
        """
        return changes_since(self, version, most_bytes)

    def pages_kept_from(self, older: Relation) -> Int64s:
        """Return, for each page of ``older``, its page number in this version, or -1 if this version does not have it.

        A kept page is the same bytes in the same place. Any other page was rewritten, lost all its rows, or lies
        outside this part. ``older`` may itself be a part.
        """
        return pages_kept_from(self, older)

    def versions(self) -> list[int]:
        """Return the numbers of the versions that can be opened, oldest first."""
        return list_versions(self.path)

    def vacuum(self, keep: int = 1, *, wait_s: float | None = None) -> list[str]:
        """Remove all but the last ``keep`` versions and every file they do not need; return the removed names.

        Versions that unfinished batches of pipelines need stay too. Another writer is waited for as in `update`.
        """
        return vacuum_relation(self.path, keep, wait_s)

    def verify(self) -> Verified:
        """Read every byte of this version; raise `CorruptRelation` for a wrong checksum, order or count."""
        return verify_relation(self)

    def require_columns(self, columns: str | Sequence[str] | None) -> list[str]:
        """Return ``columns`` as a list, all columns for None; raise `ColumnNotFound` for an unknown name."""
        return named_columns(self.schema, columns, self.path)


def _read_table(folder: Path, manifest: Manifest, groups: Sequence[int]) -> PageTable:
    files = [[file.nbytes for file in manifest.files_of(group)] for group in groups]
    return PageTable.read(check_whole(folder, manifest.page_table), groups, files)
