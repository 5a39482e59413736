"""The manifest of one version of a relation, and the pointer to the current one.

A relation is a folder::

    CURRENT                      which version readers open; swapping it publishes a version
    lock                         held by the writer
    versions/000003.json         the manifest: what this version is made of
    versions/000003-9f2c41d0.pages.arrow its page table
    versions/000003-9f2c41d0.changes.arrow key codes that the update touched, if an update made this version
    versions/000003-9f2c41d0.counts.arrow rows of each key, if shedding has counted them
    data/000003-9f2c41d0-0.arrow pages; a version refers to the files of earlier ones too
    data/000003-9f2c41d0-0-1.arrow their columns of group 1, if there are column groups
    lmdb/000003-9f2c41d0         the same pages as a B+tree, if a nested loop join has asked for it
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from semistream.errors import CorruptRelation, NotARelation, RelationError, UnsupportedFormat
from semistream.storage.local_files import replace_file

FORMAT = 1
GROUPED_FORMAT = 2  # the same with column groups
DATA, VERSIONS, CURRENT, LMDB = "data", "versions", "CURRENT", "lmdb"


@dataclass(frozen=True)
class DataFile:
    """A file of pages, which lie in bytes ``begin`` to ``end``; ``edges`` is the checksum of the bytes around them."""

    name: str
    nbytes: int
    begin: int
    end: int
    edges: int


@dataclass(frozen=True)
class WholeFile:
    """A file that is checked as a whole."""

    name: str
    nbytes: int
    checksum: int


@dataclass(frozen=True)
class Manifest:
    """What one version of a relation is made of. ``schema_bytes`` is the Arrow IPC form of the user's schema.

    ``column_groups`` are the columns of each group, the key's first; if there are none, all columns are in one.
    ``files`` has a file of each group, in their order, for each number that the page table refers to. ``changes`` holds
    the key codes that the update from the version before has touched. It is None where this version was built, and in
    manifests that were written before there was such a file. ``transactions`` has for each writer that numbers its
    updates the number of the last one, and the version that it made; ``counters`` are numbers that writers keep with R.
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
        """How many groups the columns are in."""
        return max(len(self.column_groups), 1)

    def files_of(self, group: int) -> tuple[DataFile, ...]:
        """The files of one group, by the number that the page table has for them."""
        return self.files[group :: self.num_groups]

    @property
    def schema(self) -> pa.Schema:
        """R's columns as the user gave them."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema_bytes)))

    @property
    def file_names(self) -> set[str]:
        """Every file that this version needs, relative to the relation's folder, without the manifest itself."""
        whole = [*self.null_files, self.page_table] + ([] if self.changes is None else [self.changes])
        return {file.name for file in self.files} | {file.name for file in whole}


def _check(text: str) -> str:
    return xxhash.xxh64_hexdigest(text.encode())


def encode_schema(schema: pa.Schema) -> str:
    """A schema as the text that a manifest keeps."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def manifest_name(version: int) -> str:
    """Where the manifest of a version stands in the relation's folder."""
    return f"{VERSIONS}/{version:06d}.json"


def lmdb_folder(manifest: Manifest) -> str:
    """Where the B+tree of a version stands, if there is one. No two versions ever share the name."""
    return f"{LMDB}/{Path(manifest.page_table.name).name.removesuffix('.pages.arrow')}"


def match_counts_name(manifest: Manifest) -> str:
    """Where the rows of each key of a version are counted, if they were."""
    return f"{manifest.page_table.name.removesuffix('.pages.arrow')}.counts.arrow"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest; it is not published before `set_current`."""
    fields = asdict(manifest)
    for name in ("column_groups", "transactions", "counters"):
        if not fields[name]:
            del fields[name]  # then it is what every semistream reads
    body = json.dumps(fields, sort_keys=True)
    written = GROUPED_FORMAT if manifest.column_groups else FORMAT
    record = {"format": written, "checksum": _check(body), "manifest": body}
    replace_file(folder / manifest_name(manifest.version), json.dumps(record, indent=1).encode())


def read_manifest(folder: Path, version: int) -> Manifest:
    """Read and check the manifest of a version."""
    path = folder / manifest_name(version)
    try:
        record = json.loads(path.read_bytes())
        format_version, body, checksum = record["format"], record["manifest"], record["checksum"]
    except FileNotFoundError:
        raise CorruptRelation(f"{path}, the manifest of version {version}, is missing. Restore it.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRelation(f"{path} is not a readable manifest ({error}). Restore it from a copy.") from error
    if format_version not in (FORMAT, GROUPED_FORMAT):
        raise UnsupportedFormat(
            f"{folder} is written in format {format_version!r}; this semistream reads formats {FORMAT} and "
            f"{GROUPED_FORMAT}. Use the semistream that wrote it, or build the relation again."
        )
    if not isinstance(body, str) or _check(body) != checksum:
        raise CorruptRelation(f"{path} does not match its checksum. Restore it from a copy.")
    return _from_json(json.loads(body))


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
    """Publish a version: readers that open the relation from now on get it."""
    text = f"semistream relation, version {version}"
    replace_file(folder / CURRENT, f"{text}, check {_check(text)}\n".encode())


def get_current(folder: Path) -> int:
    """The published version."""
    path = folder / CURRENT
    try:
        text, _, check = path.read_text(errors="replace").strip().rpartition(", check ")
    except (FileNotFoundError, NotADirectoryError):
        what = "does not exist" if not folder.exists() else "is not a relation: it has no file CURRENT"
        raise NotARelation(f"{folder} {what}. Relation.build(data, path, key=...) makes one.") from None
    if _check(text) != check:
        raise CorruptRelation(
            f"{path} does not match its checksum. Relation.open(path, version=...) opens a version by number."
        )
    return int(text.rpartition(" ")[2])


def list_versions(folder: Path) -> list[int]:
    """Published versions that have a manifest, oldest first; all that have one if the pointer is damaged.

    A manifest past the current version was left by a writer that died: the next one takes its number.
    """
    try:
        current = get_current(folder)
    except CorruptRelation:
        current = sys.maxsize
    versions = sorted(int(p.stem) for p in (folder / VERSIONS).glob("*.json") if p.stem.isdigit())
    return [version for version in versions if version <= current]


def require_version(folder: Path, version: int) -> int:
    """A version that the caller named, if it was published and is still there."""
    versions = list_versions(folder)
    if version not in versions:
        have = ", ".join(map(str, versions)) or "none"
        raise RelationError(f"{folder} has no version {version}; it has {have}.")
    return version
