"""LmdbStore: R's pages as the leaves of an LMDB B+tree, in place of the Berkeley DB of the papers' baseline."""

from __future__ import annotations

import errno
import secrets
import shutil
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb
import numpy as np

from semistream.errors import CorruptRelation, RelationError, StorageError
from semistream.relation import Relation
from semistream.relation.format.manifest import lmdb_folder
from semistream.storage.disk_errors import disk_errors
from semistream.storage.local_files import leftovers, make_folder, sync_folder
from semistream.storage.locks import builder_lock

# Leaves are ordered by their last codes, so the first key at or above a code names the first page that may hold it.
_KEY = struct.Struct(">QQII")  # last code, first code (sign bit flipped, so that bytes sort as numbers), page, rows
_SIGN = 1 << 63
_PAGES_PER_COMMIT = 4096


@dataclass(frozen=True)
class Leaf:
    """A page of R in the tree. Its ``segments``, one per column group, are views valid while the store is open."""

    page: int
    rows: int
    first_code: int
    last_code: int
    segments: list[memoryview]


class LmdbStore:
    """An open B+tree over the pages of one version of R. Use `open_store`: LMDB opens a file once per process."""

    def __init__(self, path: Path, groups: int) -> None:
        self._groups = groups  # number of column groups of a page
        self._environment = lmdb.open(str(path), readonly=True, lock=False, readahead=False, max_spare_txns=0)
        self._transaction = self._environment.begin(buffers=True)

    @property
    def num_pages(self) -> int:
        """Number of pages in the tree."""
        return int(self._environment.stat()["entries"])

    def leaves(self, code: int, groups: Sequence[int]) -> Iterator[Leaf]:
        """Yield pages in order from the first one that may hold ``code``, with the segments of some ``groups``.

        Descends the tree once, then walks its leaves.
        """
        with self._transaction.cursor() as cursor:
            found = cursor.set_range(_KEY.pack(code + _SIGN, 0, 0, 0))
            while found:
                last, first, page, rows = _KEY.unpack(cursor.key())
                segments = _unpack(cursor.value(), self._groups)
                yield Leaf(page, rows, first - _SIGN, last - _SIGN, [segments[group] for group in groups])
                found = cursor.next()

    def __del__(self) -> None:
        if hasattr(self, "_transaction"):  # not if the tree could not be opened
            self._transaction.abort()
            self._environment.close()


_open_stores: WeakValueDictionary[Path, LmdbStore] = WeakValueDictionary()
_opening = threading.Lock()


def has_store(relation: Relation) -> bool:
    """Return True if this version of the relation already has a tree."""
    return _path(relation).exists()


def open_store(relation: Relation) -> LmdbStore:
    """Open the tree of a relation's version, and build it beside the relation on first use.

    Processes that need the tree at once wait for the first of them.
    """
    path = _path(relation)
    with _opening:
        store = _open_stores.get(path)
        if store is None:
            if not path.exists():
                _build(Relation.open(relation.path, relation.version), path)
            store = _open_stores[path] = _opened(relation, path)
        return store


def _opened(relation: Relation, path: Path) -> LmdbStore:
    """Open a tree; raise `CorruptRelation` if it lacks pages."""
    try:
        store = LmdbStore(path, relation.manifest.num_groups)
    except lmdb.Error as error:
        raise RelationError(
            f"{path}, the copy of version {relation.version} for look-ups, cannot be opened ({error}). If the version "
            "was vacuumed, open the current one; otherwise remove the folder, and it is built anew."
        ) from error
    least = relation.first_page + relation.num_pages
    if store.num_pages < least:
        raise CorruptRelation(
            f"{path}, the copy of version {relation.version} for look-ups, has {store.num_pages} of the {least} pages. "
            "Remove the folder, and it is built anew."
        )
    return store


def _path(relation: Relation) -> Path:
    return (relation.path / lmdb_folder(relation.manifest)).resolve()


def _build(relation: Relation, path: Path) -> None:
    """Copy all pages into a new tree under a random name, check it, and publish it by a rename.

    The builder's lock spares others the same work, and keeps `vacuum_relation` off the unpublished tree. Even without
    working locks, on some network disks, a tree appears whole or not at all: no two builders share a name, and a folder
    is never renamed over another.
    """
    make_folder(path.parent)
    with builder_lock(path.parent):
        if path.exists():
            return  # the process that held the lock has built it
        for dead in leftovers(path):
            shutil.rmtree(dead, ignore_errors=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            _write(relation, temporary)
            with disk_errors(path):
                if not path.exists():
                    temporary.rename(path)
        except lmdb.Error as error:
            raise StorageError(
                errno.EIO,
                f"the copy of {relation.path} for look-ups cannot be built ({error}); it takes up to "
                f"{2 * relation.nbytes:,} bytes. Next: free some space, or choose another operator.",
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync_folder(path.parent)


def _write(relation: Relation, folder: Path) -> None:
    """Write all pages to a new tree, and check their number."""
    environment = lmdb.open(str(folder), map_size=2 * relation.nbytes + (64 << 20))
    try:
        pairs = _pairs(relation)
        while chunk := [pair for _, pair in zip(range(_PAGES_PER_COMMIT), pairs, strict=False)]:
            with environment.begin(write=True) as transaction:
                transaction.cursor().putmulti(chunk, append=True)
        environment.sync(True)
        written = environment.stat()["entries"]
    finally:
        environment.close()
    if written != relation.num_pages:
        raise CorruptRelation(
            f"{folder} has {written} of {relation.num_pages} pages after it was written. Check the disk, and try again."
        )
    sync_folder(folder)  # LMDB syncs its files, not their names


def _pairs(relation: Relation) -> Iterator[tuple[bytes, bytes]]:
    table = relation.table
    for run in relation.read_pages(np.arange(len(table))):
        for position, page in enumerate(run.pages.tolist()):
            last, first = int(table.last_code[page]) + _SIGN, int(table.first_code[page]) + _SIGN
            segments = [run.message(position, segment) for segment in range(relation.segments)]
            yield _KEY.pack(last, first, page, int(table.rows[page])), _pack(segments)


def _pack(segments: list[memoryview]) -> bytes:
    """Concatenate the segments of a page; several segments are preceded by their lengths."""
    lengths = [len(segment) for segment in segments] if len(segments) > 1 else []
    return b"".join([struct.pack(f"={len(lengths)}q", *lengths), *segments])


def _unpack(value: memoryview, groups: int) -> list[memoryview]:
    if groups == 1:
        return [value]
    lengths = struct.unpack_from(f"={groups}q", value)
    ends = list(accumulate(lengths, initial=8 * groups))
    return [value[begin:end] for begin, end in pairwise(ends)]
