"""Damaged files are found, named, and never read as intact."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import CorruptRelation, NotARelation, RelationError, UnsupportedFormat
from semistream.relation import Relation
from semistream.relation.format.manifest import manifest_name, write_manifest
from semistream.relation.format.page_table import PageTable
from semistream.relation.write.version_draft import seal_whole
from tests.relation.row_sets import files_under, row_set, scratch_folder

DAMAGE = (CorruptRelation, NotARelation, UnsupportedFormat)
KINDS = ["CURRENT", "manifest", "page table", "changes", "first data file", "second data file", "null keys"]


@pytest.fixture(scope="module")
def sound() -> Iterator[Relation]:
    """Two data files, hashed codes, strings, nested values, null keys."""
    rng = np.random.default_rng(0)
    words = [None if i % 50 == 0 else f"w{n}" for i, n in enumerate(rng.integers(0, 200, 400))]
    table = pa.table({"k": words, "n": rng.random(400), "l": [[i] * (i % 3) for i in range(400)]})
    with scratch_folder() as folder:
        relation = Relation.build(table, folder / "r", key="k", page_bytes=2048)
        yield relation.update(upserts=table.slice(3, 2))


@pytest.fixture
def copy(sound: Relation) -> Iterator[Path]:
    with scratch_folder() as folder:
        shutil.copytree(sound.path, folder / "r")
        yield folder / "r"


def _file(relation: Relation, kind: str) -> str:
    manifest = relation.manifest
    assert manifest.changes is not None
    return {
        "CURRENT": "CURRENT",
        "manifest": manifest_name(relation.version),
        "page table": manifest.page_table.name,
        "changes": manifest.changes.name,
        "first data file": manifest.files[0].name,
        "second data file": manifest.files[1].name,
        "null keys": manifest.null_files[0].name,
    }[kind]


def _check(path: Path, name: str, expected: Counter[str]) -> str:
    """Damage must be found by opening or verifying, with the file's name; a scan gives the right rows or raises too."""
    with pytest.raises(DAMAGE) as found:
        Relation.open(path).verify()
    message = str(found.value)
    assert Path(name).name in message or (isinstance(found.value, UnsupportedFormat) and str(path) in message), message
    assert _scanned(path) in (expected, None)
    return message


def _scanned(path: Path) -> Counter[str] | None:
    """Return the rows of a scan; None if it finds the damage."""
    try:
        return row_set(Relation.open(path).scan())
    except DAMAGE:
        return None


def _positions(size: int) -> list[int]:
    """Return all positions in a small file; in a large file those at its ends and a sample of the others."""
    if size <= 100:
        return list(range(size))
    inner = np.random.default_rng(size).integers(12, size - 12, 80).tolist()
    return [*range(0, 12, 3), *inner, *range(size - 12, size, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_byte_anywhere_is_found(sound: Relation, copy: Path, kind: str) -> None:
    name, expected = _file(sound, kind), row_set(sound.scan())
    whole = (copy / name).read_bytes()
    table, number = sound.table, {"first data file": 0, "second data file": 1}.get(kind)
    for position in _positions(len(whole)):
        (copy / name).write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        if number is not None:
            inside = (table.file == number) & (table.offset <= position) & (position < table.offset + table.nbytes)
            file = sound.manifest.files[number]
            if file.begin <= position < file.end and not inside.any():
                Relation.open(copy).verify()  # a page that only an older version has
                continue
            message = _check(copy, name, expected)
            assert f"page {np.flatnonzero(inside)[0]} " in message if inside.any() else "schema or footer" in message
        else:
            _check(copy, name, expected)
    (copy / name).write_bytes(whole)
    assert Relation.open(copy).verify().rows == sound.num_rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "damage",
    [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[:-1], lambda b: b + b"x", lambda b: bytes(len(b))],
    ids=["emptied", "halved", "one byte short", "one byte long", "zeroed"],
)
def test_truncated_and_overwritten_files_are_found(
    sound: Relation, copy: Path, kind: str, damage: Callable[[bytes], bytes]
) -> None:
    name = _file(sound, kind)
    whole = (copy / name).read_bytes()
    (copy / name).write_bytes(damage(whole))
    if kind == "CURRENT" and damage(whole) == whole[:-1]:
        assert Relation.open(copy).verify().rows == sound.num_rows  # only the line's end: nothing is lost
    else:
        _check(copy, name, row_set(sound.scan()))


@pytest.mark.parametrize("kind", KINDS)
def test_missing_files_are_named(sound: Relation, copy: Path, kind: str) -> None:
    name = _file(sound, kind)
    (copy / name).unlink()
    expected = row_set(sound.scan()) if kind == "changes" else Counter()  # rows can be read without it
    assert "missing" in _check(copy, name, expected) or kind == "CURRENT"


def test_truncated_page_run_says_where_the_file_ends(sound: Relation, copy: Path) -> None:
    name = _file(sound, "first data file")
    relation = Relation.open(copy)
    (copy / name).write_bytes((copy / name).read_bytes()[:5000])
    with pytest.raises(CorruptRelation, match="ends at byte 5000, but bytes"):
        relation.scan().read_all()


def test_lookup_never_gives_rows_of_a_damaged_page(sound: Relation, copy: Path) -> None:
    name, file = _file(sound, "first data file"), sound.manifest.files[0]
    content = bytearray((copy / name).read_bytes())
    for position in range(file.begin + 100, file.end, 500):
        content[position] ^= 1
    (copy / name).write_bytes(content)
    key = sound.scan(["k"]).read_all()["k"][0].as_py()
    with pytest.raises(CorruptRelation, match=r"page \d+ .* does not match its checksum"):
        Relation.open(copy).lookup([key])
    with pytest.raises(CorruptRelation, match=r"page \d+ .* does not match its checksum"):
        Relation.open(copy).update(deletes=[key])
    assert Relation.open(copy).version == sound.version
    assert files_under(copy) == files_under(sound.path)


def test_damaged_current_still_lets_a_version_be_opened_by_number(sound: Relation, copy: Path) -> None:
    (copy / "CURRENT").write_text("semistream relation, version 1, check 0000\n")
    with pytest.raises(CorruptRelation, match=r"CURRENT does not match its checksum.*version=\.\.\."):
        Relation.open(copy)
    assert row_set(Relation.open(copy, version=2).scan()) == row_set(sound.scan())


@pytest.mark.parametrize("number", [0, 3, 99, "1", None])
def test_other_format_is_refused_by_its_number(sound: Relation, copy: Path, number: object) -> None:
    path = copy / _file(sound, "manifest")
    record = json.loads(path.read_text())
    record["format"] = number
    path.write_text(json.dumps(record))
    with pytest.raises(UnsupportedFormat, match=f"format {number!r}; this release of semistream reads formats 1 and 2"):
        Relation.open(copy)


@pytest.mark.parametrize(
    "content", ["[]", "5", "null", '"x"', "{}", '{"format": 1}', '{"format": 1, "manifest": 5, "checksum": ""}']
)
def test_manifest_of_other_json_is_corrupt(sound: Relation, copy: Path, content: str) -> None:
    (copy / _file(sound, "manifest")).write_text(content)
    with pytest.raises(CorruptRelation, match=r"000002\.json"):
        Relation.open(copy)


def test_damaged_changes_are_neither_read_nor_taken_for_unknown(sound: Relation, copy: Path) -> None:
    path = copy / _file(sound, "changes")
    relation = Relation.open(copy)
    assert relation.changes_since(1) is not None
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptRelation, match=r"000002-.*changes\.arrow does not match its checksum"):
        relation.changes_since(1)
    path.unlink()
    with pytest.raises(CorruptRelation, match=r"000002-.*changes\.arrow is missing"):
        relation.changes_since(1)


def test_verify_wants_changes_in_order(copy: Path) -> None:
    manifest = Relation.open(copy).manifest
    assert manifest.changes is not None
    table = pa.table({"code": [3, 3]})
    with pa.OSFile(str(copy / manifest.changes.name), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    write_manifest(copy, dataclasses.replace(manifest, changes=seal_whole(copy, manifest.changes.name)))
    with pytest.raises(CorruptRelation, match=r"changes\.arrow are not in order"):
        Relation.open(copy).verify()


def _forge(copy: Path, change: Callable[[PageTable], PageTable]) -> None:
    """Put another page table in place, with checksums that fit: a bug of the writer, not of the disk."""
    relation = Relation.open(copy)
    table = change(relation.table).to_arrow()
    name = relation.manifest.page_table.name
    with pa.OSFile(str(copy / name), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    write_manifest(copy, dataclasses.replace(relation.manifest, page_table=seal_whole(copy, name)))


def _nudged(codes: np.ndarray, page: int, by: int) -> np.ndarray:
    changed = codes.copy()
    changed[page] += by
    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.take(np.arange(len(t))[::-1]), "not in order"),
        (lambda t: t.take(np.arange(len(t) - 1)), r"holds \d+ rows, but the manifest says 395"),
        (
            lambda t: dataclasses.replace(t, first_code=_nudged(t.first_code, 0, -1)),
            "page 0 .* is not a page of this relation",
        ),
        (
            lambda t: dataclasses.replace(t, last_code=_nudged(t.last_code, -1, 1)),
            r"page \d+ .* is not a page of this relation",
        ),
        (lambda t: dataclasses.replace(t, rows=t.rows - 1), r"page \d+ .* is not a page of this relation"),
    ],
    ids=["order", "page left out", "first codes", "last codes", "rows"],
)
def test_verify_compares_the_pages_with_the_table(
    copy: Path, change: Callable[[PageTable], PageTable], message: str
) -> None:
    _forge(copy, change)
    with pytest.raises(CorruptRelation, match=message):
        Relation.open(copy).verify()


def test_verify_reads_what_is_on_disk_now_not_what_was_opened(sound: Relation, copy: Path) -> None:
    relation = Relation.open(copy)
    relation.verify()
    for kind in ("CURRENT", "manifest", "page table"):
        path = copy / _file(sound, kind)
        whole = path.read_bytes()
        path.write_bytes(whole[:-3])
        with pytest.raises(RelationError):
            relation.verify()
        path.write_bytes(whole)
    relation.verify()
