"""The manifest of one version of a relation, and the pointer to the current one.

A relation is a folder::

    CURRENT                                 number of the current version; replacing it publishes a version
    lock                                    lock file of the writer
    versions/000003.json                    manifest of version 3: its contents and files
    versions/000003-9f2c41d0.pages.arrow    its page table
    versions/000003-9f2c41d0.changes.arrow  key codes touched by the update that published it (absent for a build)
    versions/000003-9f2c41d0.counts.arrow   rows of each key, once shedding has counted them
    data/000003-9f2c41d0-0.arrow            pages; a version may also use the data files of earlier versions
    data/000003-9f2c41d0-0-1.arrow          their columns of group 1, if there are column groups
    lmdb/000003-9f2c41d0                    the same pages as a B+tree, once a nested loop join has needed it
"""

from __future__ import annotations

import base64
import errno
import json
import re
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from semistream.errors import (
    BUILD_ONE,
    CorruptRelation,
    NotARelation,
    RelationError,
    StorageError,
    UnsupportedFormat,
)
from semistream.keys.plain_types import plain_schema
from semistream.storage.disk_errors import disk_errors
from semistream.storage.local_files import replace_file

FORMAT = 1
GROUPED_FORMAT = 2  # format 1 plus column groups
DATA, VERSIONS, CURRENT, LMDB = "data", "versions", "CURRENT", "lmdb"
_PUBLISHED = re.compile(r"semistream relation, version (\d{1,18})", re.ASCII)
_NAME = re.compile(rf"({DATA}|{VERSIONS})/[A-Za-z0-9_-][A-Za-z0-9._-]*")  # stays inside the relation's folder


@dataclass(frozen=True)
class DataFile:
    """A file with pages in bytes ``begin`` to ``end``; ``edges`` is the checksum of the bytes around them."""

    name: str
    nbytes: int
    begin: int
    end: int
    edges: int


@dataclass(frozen=True)
class WholeFile:
    """A file with one checksum over its whole content."""

    name: str
    nbytes: int
    checksum: int


@dataclass(frozen=True)
class Manifest:
    """The contents of one version of a relation.

    ``schema_bytes`` is the user's schema in Arrow IPC form, encoded in base64.

    ``column_groups`` lists the columns of each group, the key's group first; it is empty if all columns share one
    group. ``files`` holds, for each file number in the page table, one file per group in group order. ``changes`` holds
    the key codes touched by the update from the previous version; it is None if this version was built, or if its
    manifest predates this file. ``transactions`` maps each writer that numbers its updates to the number of its last
    update and the version that update published. ``counters`` are numbers that writers store with R.
    """

    version: int
    key: tuple[str, ...]
    schema_bytes: str
    page_bytes: int
    fill_factor: float
    num_rows: int
    null_key_rows: int
    files: tuple[DataFile, ...]
    null_files: tuple[WholeFile, ...]
    page_table: WholeFile
    created: str
    changes: WholeFile | None = None
    column_groups: tuple[tuple[str, ...], ...] = ()
    transactions: dict[str, tuple[int, int]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def num_groups(self) -> int:
        """Number of column groups."""
        return max(len(self.column_groups), 1)

    def files_of(self, group: int) -> tuple[DataFile, ...]:
        """Return the files of one group, indexed by their number in the page table."""
        return self.files[group :: self.num_groups]

    @property
    def schema(self) -> pa.Schema:
        """Schema of R as given by the user."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema_bytes)))

    @property
    def file_names(self) -> set[str]:
        """Names of all files of this version except the manifest, relative to the relation's folder."""
        whole = [*self.null_files, self.page_table] + ([] if self.changes is None else [self.changes])
        return {file.name for file in self.files} | {file.name for file in whole}


def _check(text: str) -> str:
    return xxhash.xxh64_hexdigest(text.encode(errors="surrogatepass"))  # JSON may have halves of characters


def encode_schema(schema: pa.Schema) -> str:
    """Encode a schema as text for a manifest."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def manifest_name(version: int) -> str:
    """Return the path of a version's manifest, relative to the relation's folder."""
    return f"{VERSIONS}/{version:06d}.json"


def lmdb_folder(manifest: Manifest) -> str:
    """Return the relative path of a version's B+tree, which may not exist. No two versions ever share the name."""
    return f"{LMDB}/{Path(manifest.page_table.name).name.removesuffix('.pages.arrow')}"


def match_counts_name(manifest: Manifest) -> str:
    """Return the relative path of the file with the rows per key of a version, which may not exist."""
    return f"{manifest.page_table.name.removesuffix('.pages.arrow')}.counts.arrow"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest. It takes effect only when `set_current` publishes its version."""
    fields = asdict(manifest)
    for name in ("column_groups", "transactions", "counters"):
        if not fields[name]:
            del fields[name]  # so that older releases of semistream can read the manifest
    body = json.dumps(fields, sort_keys=True)
    written = GROUPED_FORMAT if manifest.column_groups else FORMAT
    record = {"format": written, "checksum": _check(body), "manifest": body}
    replace_file(folder / manifest_name(manifest.version), json.dumps(record, indent=1).encode())


def read_manifest(folder: Path, version: int) -> Manifest:
    """Read and check the manifest of a version."""
    path = folder / manifest_name(version)
    try:
        with disk_errors(path, "read"):
            record = json.loads(path.read_bytes())
        format_version, body, checksum = record["format"], record["manifest"], record["checksum"]
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        raise CorruptRelation(f"{path}, the manifest of version {version}, is missing. Restore it.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptRelation(f"{path} is not a readable manifest ({error}). Restore it from a copy.") from error
    if format_version not in (FORMAT, GROUPED_FORMAT):
        raise UnsupportedFormat(
            f"{folder} is written in format {format_version!r}; this release of semistream reads formats {FORMAT} and "
            f"{GROUPED_FORMAT}. Use the release that wrote it, or build the relation again."
        )
    if not isinstance(body, str) or _check(body) != checksum:
        raise CorruptRelation(f"{path} does not match its checksum. Restore it from a copy.")
    try:
        manifest = _from_json(json.loads(body))
        _require_sound(manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError, pa.ArrowException) as error:
        raise CorruptRelation(f"{path} is not a manifest ({error!r}). Restore it from a copy.") from error
    if foreign := sorted(name for name in manifest.file_names if not _NAME.fullmatch(name)):
        raise CorruptRelation(
            f"{path} names the file {foreign[0]!r}; files of a relation are in its folders {DATA} and {VERSIONS}. "
            "Restore the manifest from a copy."
        )
    if manifest.version != version:
        raise CorruptRelation(
            f"{path} is the manifest of version {manifest.version}, not of version {version}. Restore it from a copy."
        )
    return manifest


def _require_sound(manifest: Manifest) -> None:
    """Raise `ValueError` for content that no writer would have written, so that readers need not look for it."""
    names = manifest.schema.names
    if plain_schema(manifest.schema) != manifest.schema:
        raise ValueError("a column has a type that no relation stores")
    grouped = [name for group in manifest.column_groups for name in group]
    counts = [manifest.version, manifest.page_bytes, manifest.num_rows, manifest.null_key_rows]
    counts += [n for file in manifest.files for n in (file.nbytes, file.begin, file.end, file.nbytes - file.end)]
    counts += [n for pair in manifest.transactions.values() for n in pair[1:]]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("a number is missing or negative")
    if not manifest.key or not set(manifest.key) <= set(names):
        raise ValueError(f"the key {manifest.key} is not among the columns")
    if manifest.column_groups and (sorted(grouped) != sorted(names) or len(manifest.files) % manifest.num_groups):
        raise ValueError("the column groups do not fit the columns")


def _from_json(fields: dict[str, Any]) -> Manifest:
    return Manifest(
        **{
            **fields,
            "key": tuple(fields["key"]),
            "files": tuple(DataFile(**f) for f in fields["files"]),
            "null_files": tuple(WholeFile(**f) for f in fields["null_files"]),
            "page_table": WholeFile(**fields["page_table"]),
            "changes": WholeFile(**fields["changes"]) if fields.get("changes") else None,
            "column_groups": tuple(map(tuple, fields.get("column_groups", ()))),
            "transactions": {
                writer: (number, made) for writer, (number, made) in fields.get("transactions", {}).items()
            },
        }
    )


def set_current(folder: Path, version: int) -> None:
    """Publish a version: readers that open the relation from now on see it."""
    text = f"semistream relation, version {version}"
    replace_file(folder / CURRENT, f"{text}, check {_check(text)}\n".encode())


def get_current(folder: Path) -> int:
    """Return the number of the published version."""
    path = folder / CURRENT
    try:
        with disk_errors(path, "read"):
            text, _, check = path.read_text(errors="replace").strip().rpartition(", check ")
    except StorageError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        what = "does not exist" if not folder.exists() else "is not a relation: it has no file CURRENT"
        raise NotARelation(f"{folder} {what}. {BUILD_ONE}") from None
    found = _PUBLISHED.fullmatch(text)
    if found is None or _check(text) != check:
        raise CorruptRelation(
            f"{path} does not match its checksum. Open a version by number: Relation.open(path, version=...)."
        )
    return int(found[1])


def list_versions(folder: Path) -> list[int]:
    """Return the published versions that have a manifest, oldest first.

    A manifest past the current version was left by a dead writer, and the next writer reuses its number. If CURRENT is
    damaged, the list has every version with a manifest.
    """
    try:
        current = get_current(folder)
    except CorruptRelation:
        current = sys.maxsize
    versions = sorted(int(p.stem) for p in (folder / VERSIONS).glob("*.json") if p.stem.isdigit())
    return [version for version in versions if version <= current]


def require_version(folder: Path, version: int) -> int:
    """Return ``version`` if it is published and still present; otherwise raise `RelationError`."""
    versions = list_versions(folder)
    if version not in versions:
        have = ", ".join(map(str, versions)) or "none"
        raise RelationError(f"{folder} has no version {version}; it has {have}.")
    return version
