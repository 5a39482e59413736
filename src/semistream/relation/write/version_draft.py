"""Drafts of new versions: files are written under fresh names, and replacing CURRENT publishes them all at once."""

from __future__ import annotations

import errno
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import xxhash

from semistream.errors import CorruptRelation, RelationError, StorageError
from semistream.kernels.array_types import Int64s
from semistream.relation.format.column_groups import Groups
from semistream.relation.format.manifest import (
    CURRENT,
    DATA,
    LMDB,
    VERSIONS,
    DataFile,
    Manifest,
    WholeFile,
    encode_schema,
    get_current,
    manifest_name,
    set_current,
    write_manifest,
)
from semistream.relation.format.page_table import PageTable
from semistream.storage import locks
from semistream.storage.disk_errors import disk_errors
from semistream.storage.local_files import leftovers, make_folder, sync_file, sync_folder
from semistream.storage.locks import writer_lock

_OURS = {CURRENT, DATA, VERSIONS, LMDB, "lock"}


class Draft:
    """The next version of the relation in ``folder``, invisible to readers until `publish`."""

    def __init__(self, folder: Path, version: int) -> None:
        self.folder = folder
        self.version = version
        self._token = secrets.token_hex(4)
        self._names: list[str] = []
        self.scratch = folder / DATA / f".{self._token}"

    def name_file(self, label: str) -> str:
        """Return a fresh file name, relative to the folder. The file is removed if the draft fails."""
        name = f"{DATA}/{self.version:06d}-{self._token}-{label}.arrow"
        self._names.append(name)
        return name

    def name_files(self, label: str, groups: int) -> list[str]:
        """Return fresh file names for the same pages, one per column group."""
        return [self.name_file(label if group == 0 else f"{label}-{group}") for group in range(groups)]

    def adopt(self, name: str) -> None:
        """Take ownership of a file written elsewhere for this draft."""
        self._names.append(name)

    def publish(
        self,
        *,
        key: tuple[str, ...],
        schema: pa.Schema,
        page_bytes: int,
        fill_factor: float,
        files: Sequence[DataFile],
        table: PageTable,
        null_files: Sequence[WholeFile],
        null_key_rows: int,
        changes: Int64s | None = None,
        column_groups: Groups = (),
        transactions: Mapping[str, tuple[int, int]] = MappingProxyType({}),
        counters: Mapping[str, int] = MappingProxyType({}),
    ) -> Manifest:
        """Make this version current. Readers open it from then on, and not before.

        ``changes`` are the ascending codes of all keys whose rows may differ from the previous version, if known.
        """
        manifest = Manifest(
            version=self.version,
            key=key,
            schema_bytes=encode_schema(schema),
            page_bytes=page_bytes,
            fill_factor=fill_factor,
            num_rows=int(table.rows.sum()) + null_key_rows,
            null_key_rows=null_key_rows,
            files=tuple(files),
            null_files=tuple(null_files),
            page_table=self._write_table("pages", table.to_arrow()),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            changes=None if changes is None else self._write_table("changes", pa.table({"code": changes})),
            column_groups=column_groups,
            transactions=dict(transactions),
            counters=dict(counters),
        )
        sync_folder(self.folder / DATA)
        self._names.append(manifest_name(self.version))
        write_manifest(self.folder, manifest)
        set_current(self.folder, self.version)
        return manifest

    def _write_table(self, label: str, table: pa.Table) -> WholeFile:
        """Write a table to a file next to the manifest."""
        name = f"{VERSIONS}/{self.version:06d}-{self._token}.{label}.arrow"
        self._names.append(name)
        with pa.OSFile(str(self.folder / name), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return seal_whole(self.folder, name)

    @property
    def is_published(self) -> bool:
        """True if this version is the current one."""
        return (self.folder / CURRENT).exists() and get_current(self.folder) == self.version

    def discard(self) -> None:
        """Remove every file of the draft."""
        for name in self._names:
            (self.folder / name).unlink(missing_ok=True)


def seal_whole(folder: Path, name: str) -> WholeFile:
    """Force a finished file to disk and compute its checksum."""
    path = folder / name
    sync_file(path)
    return WholeFile(name, path.stat().st_size, checksum_file(path))


def check_whole(folder: Path, file: WholeFile) -> Path:
    """Return the path of a file, after checking that it exists and matches its size and checksum."""
    path = folder / file.name
    with disk_errors(path, "read"):
        if not path.exists():
            raise CorruptRelation(f"{path} is missing. Restore it from a copy, or build the relation again.")
        is_same = path.stat().st_size == file.nbytes and checksum_file(path) == file.checksum
    if not is_same:
        raise CorruptRelation(f"{path} does not match its checksum. Restore it from a copy.")
    return path


def checksum_file(path: Path) -> int:
    """Compute the checksum of a whole file."""
    digest = xxhash.xxh64()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return int(digest.intdigest())


@contextmanager
def new_version(folder: Path, *, create: bool, overwrite: bool = False, wait_s: float | None = None) -> Iterator[Draft]:
    """Hold the writer lock and draft the next version. An error removes every file of the draft.

    ``create`` creates the relation's folder if necessary; ``overwrite`` allows a build over an existing relation.
    Another writer is waited for, at most ``wait_s`` seconds (default: `WAIT_S`).
    """
    with disk_errors(folder):
        made = False
        if create:
            _require_free(folder, overwrite)
            made = make_folder(folder)
        else:
            get_current(folder)
        with _locked(folder, create=create, wait_s=locks.WAIT_S if wait_s is None else wait_s):
            if create:
                _require_free(folder, overwrite)  # again: another writer may have published before we got the lock
                for part in (DATA, VERSIONS):
                    make_folder(folder / part)  # durable before CURRENT is
            version = get_current(folder) + 1 if (folder / CURRENT).exists() else 1
            draft = Draft(folder, version)
            try:
                yield draft
            except BaseException:
                if not draft.is_published:  # an interrupt after the publication undoes nothing
                    draft.discard()
                    if made:
                        shutil.rmtree(folder, ignore_errors=True)
                raise
            finally:
                shutil.rmtree(draft.scratch, ignore_errors=True)


@contextmanager
def _locked(folder: Path, *, create: bool, wait_s: float) -> Iterator[None]:
    """Hold the writer lock, also if a writer that fails removes the new folder while this one waits."""
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(writer_lock(folder, wait_s))
                break
            except StorageError as error:
                if error.errno != errno.ENOENT or not create:
                    raise
                make_folder(folder)
        yield


def _require_free(folder: Path, overwrite: bool) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RelationError(f"{folder} is a file; a relation is a folder. Give another path.")
    if (folder / CURRENT).exists():
        if not overwrite:
            raise RelationError(
                f"{folder} already holds a relation. Give overwrite=True to publish a new version of it."
            )
    elif foreign := {entry.name for entry in set(folder.iterdir()) - leftovers(folder / CURRENT)} - _OURS:
        raise RelationError(
            f"{folder} holds other files ({', '.join(sorted(foreign)[:3])}). Give an empty or new path."
        )
