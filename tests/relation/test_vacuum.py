"""Vacuuming keeps exactly what the kept versions need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from semistream.errors import CorruptRelation, InvalidArgument, NotARelation, RelationError
from semistream.relation import Relation, vacuum
from semistream.storage.locks import writer_lock
from tests.relation.row_sets import files_under, row_set, scratch_folder


@pytest.fixture
def relation() -> Iterator[Relation]:
    """Five versions; each one rewrites a page of its own, and the first one has null keys."""
    with scratch_folder() as folder:
        keys = pa.array([*range(1000), None])
        relation = Relation.build(pa.table({"k": keys}), folder / "r", key="k", page_bytes=1024)
        for i in range(4):
            relation = relation.update(deletes=[i * 200])
        yield relation


def _needed(relation: Relation, versions: list[int]) -> set[str]:
    manifests = [Relation.open(relation.path, v).manifest for v in versions]
    names = {name for manifest in manifests for name in manifest.file_names}
    return names | {f"versions/{v:06d}.json" for v in versions} | {"CURRENT", "lock"}


@pytest.mark.parametrize("keep", [1, 2, 5, 9])
def test_last_versions_stay_whole_and_nothing_else_does(relation: Relation, keep: int) -> None:
    versions = [1, 2, 3, 4, 5][-keep:]
    contents = {v: row_set(Relation.open(relation.path, v).scan()) for v in versions}
    needed, before = _needed(relation, versions), files_under(relation.path)
    removed = relation.vacuum(keep)
    assert files_under(relation.path) == needed
    assert set(removed) == before - needed
    assert relation.versions() == versions
    for version in versions:
        opened = Relation.open(relation.path, version)
        opened.verify()
        assert row_set(opened.scan()) == contents[version]
    assert relation.vacuum(keep) == []


def test_file_goes_when_its_last_page_is_no_longer_used(relation: Relation) -> None:
    assert len(relation.manifest.files) == 5
    rewritten = relation.update(deletes=list(range(0, 1000, 3)))
    assert len(rewritten.manifest.files) == 1
    rewritten.vacuum()
    assert len(files_under(relation.path / "data")) == 2  # pages, null keys
    assert rewritten.verify().rows == rewritten.num_rows


def test_vacuumed_version_is_refused_with_those_there_are(relation: Relation) -> None:
    relation.vacuum(2)
    with pytest.raises(RelationError, match="has no version 1; it has 4, 5"):
        Relation.open(relation.path, version=1)


def test_handle_of_a_vacuumed_version_says_what_happened(relation: Relation) -> None:
    old = Relation.open(relation.path, version=1)
    relation.update(deletes=list(range(1000)))
    relation.vacuum()
    with pytest.raises(RelationError, match=r"is missing: the version that needs it was vacuumed.*current") as caught:
        old.scan().read_all()
    assert not isinstance(caught.value, CorruptRelation)
    with pytest.raises(RelationError, match="has no version 1"):
        old.verify()


def test_a_lost_file_of_a_version_that_is_kept_is_not_called_vacuumed(relation: Relation) -> None:
    next((relation.path / "data").glob("*")).unlink()
    scans = [Relation.open(relation.path, version).scan() for version in relation.versions()]
    with pytest.raises(CorruptRelation, match=r"is missing, though a version needs it"):
        [scan.read_all() for scan in scans]


@pytest.mark.parametrize("keep", [0, -1])
def test_current_version_always_stays(relation: Relation, keep: int) -> None:
    with pytest.raises(InvalidArgument, match="keep at least 1 version, the current one"):
        relation.vacuum(keep)


def test_version_published_while_waiting_for_the_lock_stays(
    relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def after_another_writer(folder: Path, wait_s: float) -> Iterator[None]:
        relation.update(deletes=[999])
        with writer_lock(folder, wait_s):
            yield

    monkeypatch.setattr(vacuum, "writer_lock", after_another_writer)
    relation.vacuum()
    latest = Relation.open(relation.path)
    assert (latest.version, latest.versions()) == (6, [6])
    assert latest.verify().rows == relation.num_rows - 1


def test_files_of_dead_writers_are_deleted(relation: Relation) -> None:
    needed = _needed(relation, [1, 2, 3, 4, 5])
    (relation.path / "data" / ".0badcafe").mkdir()
    for name in (".CURRENT.1234.tmp", "versions/.000006.json.1234.tmp", "versions/000006.json", "data/000006-x-0.arrow",
                 "data/.0badcafe/spill.tmp", "versions/000006-x.pages.arrow",
                 "versions/000006-x.changes.arrow"):  # fmt: skip
        (relation.path / name).write_text("left")
    assert relation.versions() == [1, 2, 3, 4, 5]
    with pytest.raises(RelationError, match="has no version 6"):
        Relation.open(relation.path, version=6)
    relation.vacuum(5)
    assert files_under(relation.path) == needed
    assert not (relation.path / "data" / ".0badcafe").exists()


def test_damaged_pointer_stops_the_vacuum(relation: Relation) -> None:
    (relation.path / "CURRENT").write_text("semistream relation, version 9, check 0\n")
    files = files_under(relation.path)
    with pytest.raises(CorruptRelation, match="CURRENT does not match"):
        relation.vacuum()
    assert files_under(relation.path) == files
    assert Relation.open(relation.path, version=5).num_rows == relation.num_rows


def test_folder_that_is_no_relation_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("x")
    with pytest.raises(NotARelation):
        vacuum.vacuum_relation(tmp_path, 1)
    assert files_under(tmp_path) == {"data/precious"}
