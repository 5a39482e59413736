"""Differences between two versions of a relation: the keys that updates touched, and the pages that stayed in place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.errors import CorruptRelation, InvalidArgument
from semistream.kernels.array_types import Int64s
from semistream.relation.format.arrow_files import sound_batches
from semistream.relation.format.manifest import DataFile, Manifest, WholeFile, manifest_name, read_manifest
from semistream.relation.write.version_draft import check_whole

if TYPE_CHECKING:
    from semistream.relation.relation import Relation

_CODES = pa.schema([("code", pa.int64())])
_PEAK = 3  # peak memory as a multiple of the file sizes: codes as read, concatenated, and deduplicated


def read_changes(folder: Path, file: WholeFile) -> Int64s:
    """Read the distinct codes that an update touched, in ascending order."""
    parts = [batch.column(0).to_numpy() for batch in sound_batches(check_whole(folder, file), _CODES)]
    codes: Int64s = np.concatenate([np.empty(0, np.int64), *parts])
    return codes


def changes_since(relation: Relation, version: int, most_bytes: int | None) -> Int64s | None:
    """See `Relation.changes_since`."""
    if version > relation.version:
        raise InvalidArgument(
            f"version {version} is newer than the open version {relation.version}. Ask the newer version for changes."
        )
    parts = [np.empty(0, np.int64)]
    nbytes = 0
    for number in range(relation.version, version, -1):
        try:
            file = _manifest(relation, number).changes
            if file is None:
                return None
            nbytes += file.nbytes
            if most_bytes is not None and _PEAK * nbytes > most_bytes:
                return None
            parts.append(read_changes(relation.path, file))
        except CorruptRelation:
            if (relation.path / manifest_name(number)).exists():
                raise
            return None  # vacuumed: vacuum removes a version's manifest before its other files
    codes = np.concatenate(parts)
    del parts
    codes.sort()
    first = np.ones(codes.size, np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=first[1:])
    return codes[first]


def _manifest(relation: Relation, version: int) -> Manifest:
    return relation.manifest if version == relation.version else read_manifest(relation.path, version)


def pages_kept_from(newer: Relation, older: Relation) -> Int64s:
    """See `Relation.pages_kept_from`.

    A published file never changes, so its name and an offset identify a page for good.
    """
    begins: dict[str, int] = {}
    end = 0
    for file in (*_key_files(newer), *_key_files(older)):
        if file.name not in begins:
            begins[file.name] = end
            end += file.nbytes
    kept = np.full(older.num_pages, -1, np.int64)
    _, page, older_page = np.intersect1d(
        _places(newer, begins), _places(older, begins), assume_unique=True, return_indices=True
    )
    kept[older_page] = page
    return kept


def _places(relation: Relation, begins: dict[str, int]) -> Int64s:
    """Return a unique number for each page: its offset in the concatenation of all files."""
    begin = np.array([begins[file.name] for file in _key_files(relation)], np.int64)
    return begin[relation.table.file] + relation.table.segments[0].offset


def _key_files(relation: Relation) -> tuple[DataFile, ...]:
    """Return the files of the first column group, where every page has a segment."""
    return relation.manifest.files_of(0)
