"""Integrity check of one version of a relation, byte by byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistream.errors import CorruptRelation
from semistream.relation.changes import read_changes
from semistream.relation.format.manifest import get_current
from semistream.relation.write.page_writer import edge_checksum
from semistream.relation.write.version_draft import check_whole

if TYPE_CHECKING:
    from semistream.relation.relation import Relation


@dataclass(frozen=True)
class Verified:
    """Counts of the files, pages, rows and bytes that passed verification."""

    files: int
    pages: int
    rows: int
    bytes: int


def verify_relation(relation: Relation) -> Verified:
    """Check every checksum, the order of codes within and between pages, and the row counts."""
    get_current(relation.path)
    relation = type(relation).open(relation.path, relation.version)  # opened again, as the one given may be a part
    manifest, table = relation.manifest, relation.table
    nbytes = 0
    for file in manifest.files:
        path = relation.path / file.name
        _require(path.exists(), f"{path} is missing")
        _require(path.stat().st_size == file.nbytes, f"{path} has {path.stat().st_size} bytes, not {file.nbytes}")
        _require(edge_checksum(path, file.begin, file.end) == file.edges, f"the schema or footer of {path} is damaged")
        nbytes += file.nbytes
    for whole in manifest.null_files:
        check_whole(relation.path, whole)
        nbytes += whole.nbytes
    if manifest.changes is not None:
        codes = read_changes(relation.path, manifest.changes)
        _require(bool((codes[1:] > codes[:-1]).all()), f"the codes in {manifest.changes.name} are not in order")
    rows = _verify_pages(relation) + manifest.null_key_rows
    _require(rows == manifest.num_rows, f"the relation holds {rows} rows, but the manifest says {manifest.num_rows}")
    return Verified(len(manifest.files) + len(manifest.null_files), len(table), rows, nbytes)


def _verify_pages(relation: Relation) -> int:
    """Read all pages, which verifies their checksums, and compare their codes with the page table; count the rows."""
    table = relation.table
    _require(bool((table.first_code[1:] >= table.last_code[:-1]).all()), "the page table is not in order")
    rows = 0
    for run in relation.read_pages(np.arange(len(table))):
        for position, page in enumerate(run.pages.tolist()):
            start = int(run.code_starts[position])
            codes = run.words[start : start + int(run.rows[position])]
            ordered = bool((codes[1:] >= codes[:-1]).all())
            _require(
                ordered and codes[0] == table.first_code[page] and codes[-1] == table.last_code[page],
                f"the codes of page {page} are out of order or do not match the page table",
            )
            rows += codes.size
    return rows


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise CorruptRelation(f"{problem}. Restore it from a copy, or build the relation again.")
