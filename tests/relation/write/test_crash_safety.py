"""A writer killed at any point leaves the last published version, and blocks nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import NotARelation
from semistream.relation import Relation
from semistream.relation.write import version_draft as draft
from semistream.storage import local_files as durable
from tests.relation.child_process import die_at, run_child
from tests.relation.row_sets import files_under, row_set, scratch_folder

OLD = pa.table({"k": [*range(0, 3000, 2), None], "v": ["old"] * 1501})
NEW = pa.table({"k": [*range(1, 900, 3), None], "v": ["new"] * 301})
KILLED = -9

POINTS: list[tuple[str, str, int]] = [
    ("semistream.relation.write.page_writer:PageWriter.write", "before", 1),
    ("semistream.relation.write.page_writer:PageWriter.close", "before", 1),
    ("semistream.relation.write.page_writer:PageWriter.close", "after", 1),
    ("semistream.relation.write.version_draft:seal_whole", "before", 1),
    ("semistream.relation.write.version_draft:write_manifest", "before", 1),
    ("semistream.relation.write.version_draft:write_manifest", "after", 1),
    *(("os:fsync", "before", nth) for nth in range(1, 8)),
    ("pathlib:Path.replace", "before", 1),
    ("pathlib:Path.replace", "after", 1),
    ("pathlib:Path.replace", "before", 2),  # CURRENT is written under its temporary name
]
UPDATE_POINTS = [
    *POINTS,
    (
        "semistream.relation.write.version_draft:seal_whole",
        "before",
        2,
    ),  # the page table is sealed, the changes are written
    ("semistream.relation.write.version_draft:seal_whole", "after", 2),
    ("os:fsync", "before", 8),
]
PUBLISHED = [("pathlib:Path.replace", "after", 2), ("semistream.relation.write.version_draft:set_current", "after", 1)]


def _build(path: Path, table: pa.Table, *point: Any) -> None:
    if point:
        die_at(*point)
    Relation.build(table, path, key="k", page_bytes=1024, overwrite=True)


def _update(path: Path, *point: Any) -> None:
    relation = Relation.open(path)
    die_at(*point)
    relation.update(upserts=NEW, deletes=[0])


def _leftovers(relation: Relation) -> set[str]:
    manifests = [Relation.open(relation.path, version).manifest for version in relation.versions()]
    needed = {name for manifest in manifests for name in manifest.file_names}
    needed |= {f"versions/{manifest.version:06d}.json" for manifest in manifests} | {"CURRENT", "lock"}
    return files_under(relation.path) - needed


def _go_on(path: Path, version: int, rows: Any) -> None:
    """The version is whole, a new writer gets the next number, and vacuum leaves no trace of the dead one."""
    relation = Relation.open(path)
    assert relation.version == version
    relation.verify()
    assert row_set(relation.scan()) == rows
    later = relation.update(upserts=pa.table({"k": [-5], "v": ["later"]}))
    assert later.version == version + 1
    assert later.verify().rows == relation.num_rows + 1
    changes = later.changes_since(version)
    assert changes is not None
    assert changes.tolist() == [-5]  # and nothing of what the dead writer was about to change
    later.vacuum(keep=10)
    assert _leftovers(later) == set()
    assert row_set(Relation.open(path, version=version).scan()) == rows


@pytest.mark.slow
@pytest.mark.parametrize("point", UPDATE_POINTS, ids=lambda p: f"{p[1]} {p[0].rpartition(':')[2]} {p[2]}")
def test_update_killed_before_it_is_published_changes_nothing(point: tuple[str, str, int]) -> None:
    with scratch_folder() as folder:
        _build(folder / "r", OLD)
        assert run_child(_update, folder / "r", *point)[0] == KILLED
        version = Relation.open(folder / "r").version
        rows = row_set(OLD)
        if version == 2:  # the last sync is that of the folder, after the swap
            assert point[0].endswith("fsync")
            rows = row_set(Relation.open(folder / "r").scan())
            assert rows == row_set(OLD.filter(_unchanged())) + row_set(NEW)
        _go_on(folder / "r", version, rows)


def _unchanged() -> pa.Array:
    touched = {0, *(k for k in NEW["k"].to_pylist() if k is not None)}
    return pa.array([k is None or k not in touched for k in OLD["k"].to_pylist()])


@pytest.mark.parametrize("point", PUBLISHED, ids=str)
def test_update_killed_after_it_is_published_is_there(point: tuple[str, str, int]) -> None:
    with scratch_folder() as folder:
        _build(folder / "r", OLD)
        assert run_child(_update, folder / "r", *point)[0] == KILLED
        _go_on(folder / "r", 2, row_set(OLD.filter(_unchanged())) + row_set(NEW))


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS[::2], ids=lambda p: f"{p[1]} {p[0].rpartition(':')[2]} {p[2]}")
def test_first_build_killed_before_it_is_published_can_be_done_again(point: tuple[str, str, int]) -> None:
    with scratch_folder() as folder:
        assert run_child(_build, folder / "r", NEW, *point)[0] == KILLED
        if not (folder / "r" / "CURRENT").exists():
            with pytest.raises(NotARelation):
                Relation.open(folder / "r")
            Relation.build(OLD, folder / "r", key="k", page_bytes=1024)  # without overwrite: there is no relation
            _go_on(folder / "r", 1, row_set(OLD))
        else:
            assert point[0].endswith("fsync")
            _go_on(folder / "r", 1, row_set(NEW))


@pytest.mark.parametrize("nth", [1, 2, 3, 5])
def test_vacuum_killed_half_way_leaves_the_kept_versions(nth: int) -> None:
    with scratch_folder() as folder:
        _build(folder / "r", OLD)
        relation = Relation.open(folder / "r")
        for i in range(4):
            relation = relation.update(deletes=list(range(i * 500, i * 500 + 600)))
        rows = row_set(relation.scan())
        assert run_child(_vacuum, folder / "r", "pathlib:Path.unlink", "after", nth)[0] == KILLED
        for version in relation.versions():
            Relation.open(folder / "r", version).verify()  # a version that is listed is whole
        _go_on(folder / "r", 5, rows)


def _vacuum(path: Path, *point: Any) -> None:
    relation = Relation.open(path)
    die_at(*point)
    relation.vacuum()


def test_interrupt_after_the_swap_does_not_take_the_version_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the folder is synced: CURRENT names the new version, so its files must stay."""
    real = durable.sync_folder

    def interrupted(path: Path) -> None:
        real(path)
        if path.name == "r" and (path / "CURRENT").exists():
            raise KeyboardInterrupt

    with scratch_folder() as folder:
        _build(folder / "r", OLD)
        monkeypatch.setattr(durable, "sync_folder", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Relation.open(folder / "r").update(upserts=NEW)
        with pytest.raises(KeyboardInterrupt):
            Relation.build(NEW, folder / "new" / "r", key="k")
        monkeypatch.undo()
        assert Relation.open(folder / "r").verify().rows == 1802 - int(np.isin(np.arange(1, 900, 3) % 2, 0).sum())
        assert row_set(Relation.open(folder / "new" / "r").scan()) == row_set(NEW)


@pytest.mark.parametrize("step", ["write_manifest", "set_current", "seal_whole"])
def test_error_before_the_swap_takes_everything_back(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def failing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with scratch_folder() as folder:
        _build(folder / "r", OLD)
        before = files_under(folder)
        monkeypatch.setattr(draft, step, failing)
        with pytest.raises(OSError, match="No space left"):
            Relation.open(folder / "r").update(upserts=NEW)
        with pytest.raises(OSError, match="No space left"):
            Relation.build(NEW, folder / "new", key="k")
        assert files_under(folder) == before
        assert not (folder / "new").exists()
